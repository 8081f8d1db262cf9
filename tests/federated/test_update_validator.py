"""Runs in which one client's reply is bad, too far off, or late."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import ARRAYS, METRICS
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, metrics, same, train

Settings = Callable[..., RunConfig]
Change = Callable[[Message], None]
QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 60},
    **{"evaluate_every": 2},
}
LENIENT = {**QUICK, "on_client_failure": "continue"}
BAD_CLIENT, IN_ROUND_1 = 1, 2


def changing(change: Change, at: int = IN_ROUND_1) -> dict[str, Any]:
    """Options of a run in which client 1's reply to call ``at`` (hello is 0) is changed."""

    def meddle(call: int, replies: list[Message]) -> list[Message]:
        for reply in replies if call == at else ():
            if reply.metadata.src_node_id == FIRST_NODE_ID + BAD_CLIENT:
                change(reply)
        return replies

    return {"wrap_grid": lambda grid: MeddlingGrid(grid, meddle)}


def lost(call: int, replies: list[Message]) -> list[Message]:
    bad = FIRST_NODE_ID + BAD_CLIENT if call == IN_ROUND_1 else None
    return [reply for reply in replies if reply.metadata.src_node_id != bad]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run when that reply never comes."""
    place = tmp_path_factory.mktemp("lost")
    flat = {key.replace("_", "-"): value for key, value in LENIENT.items()}
    config = resolve({**flat, "output": str(place / "run")}, place)
    return train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, lost))


def replacing(name: str, array: Any) -> Change:
    def change(reply: Message) -> None:
        reply.content[ARRAYS][name] = array if isinstance(array, Array) else Array(array)

    return change


def truncated(reply: Message) -> None:
    array = reply.content[ARRAYS]["1.bias"]
    array.data = array.data[:-4]


def telling(**told: Any) -> Change:
    names = {key.replace("_", "-"): value for key, value in told.items()}
    return lambda reply: reply.content[METRICS].update(names)


BAD: dict[str, tuple[Change, str]] = {
    "shape": (
        replacing("1.bias", np.zeros((3, 4), np.float32)),
        "its update has shape (3, 4) for '1.bias', not (128,)",
    ),
    "truncated": (
        truncated,
        "its array '1.bias' is announced as float32 (128,) and has 508 bytes, not 512",
    ),
    "loss": (telling(loss=math.nan), "its loss is not finite"),
    "odd metric": (telling(more=1), "its metrics differ from the other clients' in 'more'"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_bad_reply_is_that_of_a_failed_client(
    settings: Settings,
    without: Path,
    caplog: pytest.LogCaptureFixture,
    change: Change,
    message: str,
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    directory = train(settings(**LENIENT), 3, **changing(change))
    assert same(directory, without)
    assert [(line["clients"], line["failures"]) for line in metrics(directory)] == [(2, 1), (3, 0)]
    assert f"1 client(s) failed in round 1: Client 1: {message}" in caplog.text


def test_a_bad_evaluation_is_that_of_a_failed_client(settings: Settings) -> None:
    plan = {**LENIENT, "num_rounds": 1, "selection": "heldout", "points_per_client": 100}
    whole = train(settings(**plan), 3)
    directory = train(settings(**plan), 3, **changing(telling(loss=math.inf), IN_ROUND_1 + 1))
    lines = [metrics(run)[0] for run in (whole, directory)]
    assert [line["failures"] for line in lines] == [0, 1]
    assert lines[0]["heldout_loss"] != lines[1]["heldout_loss"]
    assert math.isfinite(lines[1]["heldout_loss"])
    plan["on_client_failure"] = "stop"
    with refuses("client-failed", match=r"Client 1: .*loss"):
        train(settings(**plan), 3, **changing(telling(loss=math.inf), IN_ROUND_1 + 1))


def test_a_bad_introduction_is_that_of_a_failed_client(settings: Settings) -> None:
    def change(reply: Message) -> None:
        reply.content["config"]["num-points"] = -1

    directory = train(settings(**LENIENT), 3, **changing(change, at=1))
    assert [(line["clients"], line["failures"]) for line in metrics(directory)] == [(2, 1), (2, 0)]
    federation = json.loads((directory / "federation.json").read_text())["clients"]
    assert [client["status"] for client in federation] == ["accepted", "dropped", "accepted"]
    message = r"round 1: Client 1: A message came with num-points below 0 \("
    with pytest.raises(UserError, match=message):
        train(settings(**QUICK), 3, **changing(change, at=1))
