"""FedMatch's messages: both ends in step, replies that do not fit, helpers, and traffic by hand."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.run_config import resolve
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import BASE_ROUND, HELPERS, STALE
from fedul_flwr.federated.owner.door import build_client, make_client_app
from fedul_flwr.learning.parts import PSI, SIGMA, unflatten
from fedul_flwr.strategies.fedmatch_parts import HEADER, INDICES, VALUES, decode
from tests.support.fedmatch_exchanges import (
    LC,
    SCENARIOS,
    Exchange,
    Fate,
    assert_in_step,
    held_by_server,
    parts_after,
    watched,
)
from tests.support.refusals import refuses
from tests.support.runs import metrics, same, summary, train
from tests.support.settings import Settings

THRESHOLD = 5e-5
"""Of differences, by default."""


def is_whole(exchange: Exchange, part: str, parts: dict[str, Arrays]) -> bool:
    return exchange.down[part].keys() == parts[part].keys()


# In step

FATES: dict[tuple[int, int], Fate] = {(2, 1): "fails", (2, 2): "lost", (5, 0): "late"}
FORGETFUL = (3, 3)
"""Round and client that loses its memory before it."""
SINCE_BY_HAND = [
    [0, 0, 0, 0, 0],
    [1, 1, 1, 1, 1],
    [2, 0, 0, 2, 2],  # 1 failed and 2's answer was lost: nobody knows what they hold
    [3, 3, 3, 0, 3],  # 3 said that it holds nothing
    [4, 4, 4, 4, 4],
    [0, 5, 5, 5, 5],
]
"""Round from which differences start, by round and client; 0 is everything."""


@pytest.mark.parametrize("options", SCENARIOS.values(), ids=SCENARIOS)
def test_both_ends_hold_the_same_bits_while_clients_drop_out_and_in(
    settings: Settings, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    config = settings(**{**options, "num_rounds": 6, "on_client_failure": "continue"})
    directory = Path(config.output)
    before: dict[int, dict[int, Arrays]] = {1: {}}
    parts: dict[int, dict[str, Arrays]] = {}

    def fate(number: int, client: int) -> Fate:
        if number > 1 and number not in before:
            assert_in_step(directory, number - 1)
            before[number] = held_by_server(directory, number - 1)
            parts[number] = parts_after(directory, number - 1)
        if (number, client) == FORGETFUL:
            shutil.rmtree(directory / "clients" / str(client))
        return FATES.get((number, client), "answers")

    exchanges: list[Exchange] = []
    train(config, 5, **watched(exchanges, fate=fate))
    assert_in_step(directory, 6)
    since = [[e.config[BASE_ROUND] for e in exchanges if e.round == r] for r in range(1, 7)]
    assert since == SINCE_BY_HAND
    told = [(e.round, e.client) for e in exchanges if e.metrics.get(STALE)]
    assert told == [FORGETFUL]
    lines = metrics(directory)
    assert [line["failures"] for line in lines] == [0, 2, 0, 0, 1, 0]
    assert [line["clients"] for line in lines] == [5, 3, 4, 5, 4, 5]
    stale = "Round 3: 1 client(s) did not hold what they should, and sit it out."
    assert stale in [record.getMessage() for record in caplog.records]
    assert all(line["loss"] > 0 for line in lines)
    known = parts_after(directory, 6)
    for exchange in exchanges:
        whole = [is_whole(exchange, part, known) for part in known]
        assert all(whole) if not exchange.config[BASE_ROUND] else not all(whole)
        if exchange.round > 1 and options is LC:  # else the server has trained sigma since
            held = unflatten(before[exchange.round].get(exchange.client, {}))
            for part, arrays in parts[exchange.round].items():
                taken = decode(exchange.down[part], held.get(part, {}))
                for name, array in arrays.items():
                    assert np.abs(taken[name] - array).max() <= THRESHOLD


# On devices, whose memory is Flower's


def on_device(context: Any) -> Any:
    client: Any = build_client(context)
    client.state = ClientState(context.state)
    return client


def test_on_devices_it_is_the_same(settings: Settings) -> None:
    plan = {**LC, "fedmatch.keep-helpers": True}
    here = train(settings(**plan), 3)
    there = train(settings(**plan), 3, client_app=make_client_app(on_device))
    assert same(here, there)
    assert metrics(here) == metrics(there)
    assert not (there / "clients").exists()


# Replies that do not fit

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "places": (
        {"1.bias" + INDICES: np.array([128], np.uint32), "1.bias" + VALUES: np.ones(1, "f4")},
        "must increase and stay below 128",
    ),
    "vast": ({"1.weight": np.full((128, 64), 3e38, np.float32)}, "outputs are not finite"),
}


def replacing(record: dict[str, Any]) -> Callable[[Exchange, Message], None]:
    """Client 1's psi in round 2 is another."""

    def meddle(exchange: Exchange, reply: Message) -> None:
        if (exchange.round, exchange.client) == (2, 1):
            del reply.content[PSI]
            reply.content[PSI] = ArrayRecord({name: Array(array) for name, array in record.items()})

    return meddle


@pytest.fixture(scope="module")
def without_that_answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lost")
    flat = {key.replace("_", "-"): value for key, value in LC.items()}
    flat |= {"on-client-failure": "continue", "output": str(place / "run")}
    fate: Any = lambda number, client: "lost" if (number, client) == (2, 1) else "answers"  # noqa: E731
    return train(resolve(flat, place), 3, **watched([], fate=fate))


@pytest.mark.parametrize(("record", "reason"), BAD.values(), ids=BAD)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_reply_that_does_not_fit_is_that_of_a_failed_client(
    settings: Settings, without_that_answer: Path, record: dict[str, Any], reason: str
) -> None:
    exchanges: list[Exchange] = []
    plan = {**LC, "on_client_failure": "continue"}
    directory = train(settings(**plan), 3, **watched(exchanges, meddle=replacing(record)))
    assert same(directory, without_that_answer)
    assert [line["failures"] for line in metrics(directory)] == [0, 1, 0]
    assert_in_step(directory, 3)
    assert [e.config[BASE_ROUND] for e in exchanges if e.round == 3] == [2, 0, 2]
    with refuses("client-failed", match=f"round 2: .*{reason}"):
        train(settings(**LC), 3, **watched([], meddle=replacing(record)))


# Traffic


@pytest.mark.parametrize("options", SCENARIOS.values(), ids=SCENARIOS)
def test_traffic_is_what_travelled(settings: Settings, options: dict[str, Any]) -> None:
    exchanges: list[Exchange] = []
    directory = train(settings(**{**options, "fraction_train": 0.75}), 4, **watched(exchanges))
    for line in metrics(directory):
        now = [exchange for exchange in exchanges if exchange.round == line["round"]]
        assert len(now) == line["clients"] == 3
        assert line["bytes_down"] == sum(e.bytes_down for e in now)
        assert line["bytes_up"] == sum(e.bytes_up for e in now)
        for way in ("down", "up"):
            for part in (SIGMA, PSI, HELPERS):
                arrays = [a for e in now for a in getattr(e, way).get(part, {}).values()]
                sent = sum(HEADER + array.nbytes for array in arrays)
                assert line.get(f"bytes_{way}_{part}", 0) == sent
    first, second, _ = metrics(directory)
    # As the authors count: a client that is new in a later round pays what others pay.
    assert first["released_down_percent"] == pytest.approx(200)
    arrivals = [e.round for e in exchanges if e.round > 1 and not e.config[BASE_ROUND]]
    assert arrivals
    for line in metrics(directory)[1:]:
        if line["round"] in arrivals:
            assert line["released_down_percent"] < line["nonzero_down_percent"] - 5
        assert 0 < line["released_down_percent"] < line["nonzero_down_percent"] + 1
    mean = sum(line["released_down_percent"] for line in metrics(directory)) / 3
    assert summary(directory)["released_down_percent"] == pytest.approx(mean)
    assert first["nonzero_down_percent"] == pytest.approx(200)  # sigma and psi, over one theta
    assert second["bytes_down_helpers"] > 0
    assert ("bytes_up_sigma" in second) == (options is LC)
