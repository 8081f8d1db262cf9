"""Runs in which one client's reply is bad, too far off, or late."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message

from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.federated.messages import ARRAYS, METRICS
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, metrics, same, train
from tests.support.settings import QUICK, Settings

Change = Callable[[Message], None]
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


def replacing(name: str, array: Any) -> Change:
    def change(reply: Message) -> None:
        reply.content[ARRAYS][name] = Array(array)

    return change


def telling(**told: Any) -> Change:
    names = {key.replace("_", "-"): value for key, value in told.items()}
    return lambda reply: reply.content[METRICS].update(names)


def test_a_bad_reply_is_that_of_a_failed_client(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    bad = changing(replacing("1.bias", np.zeros((3, 4), np.float32)))
    directory = train(settings(**LENIENT), 3, **bad)
    lost = train(settings(**LENIENT), 3, **changing(lambda reply: reply.content.clear()))
    assert same(directory, lost)
    assert [(line["clients"], line["failures"]) for line in metrics(directory)] == [(2, 1), (3, 0)]
    said = "its update has shape (3, 4) for '1.bias', not (128,)"
    assert f"1 client(s) failed in round 1: Client 1: {said}" in caplog.text


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
