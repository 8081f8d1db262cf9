"""SCAFFOLD's c stays the mean of all c_i: lost, late and refused replies, restarts, newcomers."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from safetensors.numpy import load_file

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.run_config import resolve
from fedul_flwr.learning.variates import CONTROL, confirmed
from tests.support.fake_fleet import OWNERS, Flock, run_fleet, write_owners
from tests.support.fedmatch_exchanges import Exchange, Fate, watched
from tests.support.runs import metrics, train
from tests.support.settings import Settings

PLAN: dict[str, Any] = {
    **{"model": "mlp", "optimizer": "sgd", "learning_rate": 0.1, "base": "scaffold"},
    **{"num_rounds": 6, "local_epochs": 1, "on_client_failure": "continue"},
    **{"points_per_client": 60, "precision": "float64"},
}
LENIENT = {"on_client_failure": "continue"}


def control(directory: Path, server_round: int) -> Arrays:
    """The server's c after a round."""
    prefix, state = "base/control/dict/", load_file(directory / f"state-{server_round}.safetensors")
    return {k.removeprefix(prefix): a for k, a in state.items() if k.startswith(prefix)}


def used(directory: Path, server_round: int) -> dict[int, int]:
    """By client, the round whose update was used last."""
    prefix, state = "base/used/dict/", load_file(directory / f"state-{server_round}.safetensors")
    return {int(k.removeprefix(prefix)): int(state[k]) for k in state if k.startswith(prefix)}


def kept_in_files(directory: Path) -> dict[int, Arrays]:
    """What every client keeps of variates, by the newest of its files."""
    found = {}
    for folder in sorted((directory / "clients").iterdir()):
        files = {int(file.stem.rpartition("-")[2]): file for file in folder.glob("control-*")}
        if files:
            found[int(folder.name)] = load_file(files[max(files)])
    return found


def mean_of(variates: Mapping[int, Mapping[str, Any]], clients: int) -> Arrays:
    """(1/C) Σ c_i; a client without a variate has zeros."""
    names = next(found.keys() for found in variates.values() if found)
    return {
        name: sum(own[name].astype(np.float64) for own in variates.values() if own) / clients
        for name in names
    }


def assert_mean(directory: Path, server_round: int, kept: Mapping[int, Arrays]) -> None:
    """See that c is the mean of the c_i that clients go on from."""
    known = used(directory, server_round)
    own = {client: confirmed(kept.get(client, {}), known[client]) for client in known}
    expected, found = mean_of(own, len(known)), control(directory, server_round)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-12)
    assert max(np.abs(array).max() for array in expected.values()) > 1e-4


def test_with_part_of_the_clients_in_a_round(settings: Settings) -> None:
    """Some take part more often than others, and some perhaps never."""
    directory = train(settings(**{**PLAN, "num_rounds": 4, "fraction_train": 0.4}), 5)
    kept = kept_in_files(directory)
    assert 2 <= len(kept) <= 5
    assert {client for client, number in used(directory, 4).items() if number} == set(kept)
    assert_mean(directory, 4, kept)


FATES: dict[str, dict[tuple[int, int], Fate]] = {
    "lost": {(2, 1): "lost", (3, 0): "lost", (6, 2): "lost"},
    "late": {(2, 1): "late", (3, 1): "late", (5, 0): "late"},
    "fails before it trains": {(2, 1): "fails", (6, 0): "fails"},
    "lost in its first round": {(1, 0): "lost", (2, 0): "late"},
    "refused": {},
}
REFUSED = {(2, 1), (4, 0)}


@pytest.mark.parametrize(("case", "option"), [*((case, "II") for case in FATES), ("lost", "I")])
def test_with_replies_that_do_not_count(settings: Settings, case: str, option: str) -> None:
    fates, exchanges = FATES[case], list[Exchange]()

    def spoil(exchange: Exchange, reply: Message) -> None:
        if case == "refused" and (exchange.round, exchange.client) in REFUSED:
            record = reply.content.array_records[CONTROL]
            record["5.bias"] = Array(np.full_like(record["5.bias"].numpy(), np.nan))

    directory = train(
        settings(**PLAN, **{"scaffold.option": option}),
        3,
        **watched(exchanges, fate=lambda *at: fates.get(at, "answers"), meddle=spoil),
    )
    missed = set(fates) | (REFUSED if case == "refused" else set())
    assert sum(line["failures"] for line in metrics(directory)) == len(missed)
    # Every client's c_i by what it said of it, of the replies that counted.
    own: dict[int, Arrays] = {}
    for exchange in exchanges:
        if exchange.up and (exchange.round, exchange.client) not in missed:
            before, change = own.get(exchange.client, {}), exchange.up[CONTROL]
            own[exchange.client] = {n: before.get(n, 0) + change[n] for n in change}
    expected, kept = mean_of(own, 3), kept_in_files(directory)
    for name, array in control(directory, 6).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-9, atol=1e-12)
    # And by what it goes on from.
    for client, number in used(directory, 6).items():
        for name, array in confirmed(kept[client], number).items():
            np.testing.assert_allclose(array, own[client][name], rtol=1e-9, atol=1e-12)
    assert_mean(directory, 6, kept)


def test_a_run_that_resumes_with_clients_that_have_kept_nothing_begins_anew(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """On devices a resumed run is a new one, and Flower gives clients a new memory."""
    caplog.set_level("WARNING", logger="flwr")
    config = settings(**{**PLAN, "num_rounds": 3})
    directory = train(config, 3)
    shutil.rmtree(directory / "clients")
    train(resolve({"resume": str(directory), "num-rounds": 5}, Path.cwd()), 3)
    assert re.search("Client 0 .*variate", caplog.text)
    assert_mean(directory, 5, kept_in_files(directory))


# Nodes of data owners


Run = Callable[..., tuple[Path, Flock, dict[int, Arrays]]]


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    """``run(there=…, forgets=…)`` of four owners: results, what was heard, what clients keep."""
    write_owners(tmp_path / "owners", 4)

    def start(
        there: Callable[[int], Any] = lambda number: range(4), forgets: Any = (), **more: Any
    ) -> tuple[Path, Flock, dict[int, Arrays]]:
        plan = {**OWNERS, **LENIENT, "base": "scaffold", "optimizer": "sgd", "learning_rate": 0.1}
        plan |= {"num_rounds": 6, "precision": "float64", **more}
        fleet: dict[str, Any] = {"partitions": range(4), "there": there, "forgets": forgets}
        directory, flock = run_fleet(settings(**plan), tmp_path / "owners", **fleet)
        kept: dict[int, Arrays] = {}
        for node, context in flock.contexts.items():
            if CONTROL in context.state:
                record = context.state[CONTROL]
                assert isinstance(record, ArrayRecord)
                kept[node] = {n: a.numpy() for n, a in record.items()}
        return directory, flock, kept

    return start


def test_a_restarted_device_makes_all_variates_begin_anew(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    directory, flock, kept = run(forgets={(3, 2)}, num_rounds=4)
    assert re.search("Client 2 .*variate", caplog.text)
    # It fails in round 3, as it was told nothing yet, and is prepared again before round 4.
    assert flock.asked(4, "setup") == [2]
    assert [line["failures"] for line in metrics(directory)] == [0, 0, 1, 0]
    assert used(directory, 4) == dict.fromkeys(range(4), 4)
    # Of round 4, which began from zeros, and of nothing before it.
    assert all("confirmed-round" not in own for own in kept.values())
    assert_mean(directory, 4, kept)
