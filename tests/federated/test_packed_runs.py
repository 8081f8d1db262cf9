"""Clients and whole runs whose messages are packed: nothing else is different."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedul_flwr.client_app import app
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, task_identity
from fedul_flwr.federated import grid as grids
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.dispatch import make_client_app
from fedul_flwr.federated.messages import ARRAYS, CONFIG, to_arrays, to_record, to_records
from fedul_flwr.federated.replies import update_norm
from fedul_flwr.federated.wire import PACKED, pack, packing_mod, unpack
from tests.support.runs import MeddlingGrid, as_error, is_train, last_model, metrics, train
from tests.support.watched_app import recorded
from tests.support.watched_app.watched_client import record
from tests.support.wire_grid import WireGrid

Settings = Callable[..., RunConfig]


# Clients


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with task_identity():
        yield


NO_SETTINGS: Any = None


class Asking(MethodClient):
    """Answers with the arrays it gets, doubled; with none, or not at all, if it is told so."""

    def on_phase(self, name: str, content: Content) -> Content:
        if name == "fail":
            raise ValueError("no battery")
        arrays = {key: 2 * array for key, array in content.arrays.items() if name != "none"}
        return Content(arrays, {"arrays": len(content.arrays)})


def answer(content: RecordDict) -> RecordDict:
    app = make_client_app(
        lambda context: Asking(NO_SETTINGS, NodeConfig(), ClientState(context.state))
    )
    context = Context(0, 1, {}, RecordDict(), {})
    return app(Message(content, 1, "query.phase"), context).content


def question(name: str) -> RecordDict:
    return to_records(Content({"w": np.arange(3.0), "b": np.ones(1)}, {"phase": name}))


def test_a_client_answers_in_the_form_it_was_asked_in() -> None:
    plain, packed = answer(question("double")), answer(pack(question("double")))
    assert PACKED not in plain
    assert list(packed) == [CONFIG, PACKED]
    assert unpack(packed) == plain
    assert plain["config"] == {"arrays": 2}
    np.testing.assert_array_equal(to_arrays(plain.array_records[ARRAYS])["w"], [0.0, 2.0, 4.0])


def test_an_error_of_another_modifier_passes() -> None:
    def refuse(message: Message, context: Context) -> Message:
        assert message.content == question("double")
        return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, "no"), reply_to=message)

    message = Message(pack(question("double")), 1, "query.phase")
    context = Context(0, 1, {}, RecordDict(), {})
    assert packing_mod(message, context, refuse).error.reason == "no"


# What is recorded of them


def test_what_is_packed_is_found_by_a_search_of_what_was_sent(tmp_path: Path) -> None:
    model = np.random.default_rng(0).normal(size=(20, 5))
    content = pack(RecordDict({ARRAYS: to_record({"w": model, "b": model[0]})}))
    record(Message(content, 1, "train"), tmp_path)
    assert model.tobytes() in recorded(tmp_path)
    kinds = [file.read_bytes().partition(b" ")[0] for file in tmp_path.iterdir()]
    assert kinds.count(b"Array") == 1  # the form it travels in, and no other


# Whole runs

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 60},
}
RUNS: dict[str, dict[str, Any]] = {
    "fedul": QUICK,
    "scaffold": {**QUICK, "base": "scaffold", "optimizer": "sgd"},
    "xclp": {
        **{**QUICK, "method": "xclp", "labels.total": 60, "num_rounds": 1},
        **{"semi.labels-only-rounds": 0, "xclp.num-bits": 256},
        **{"xclp.secure": "rlwe", "xclp.codes-seed": "run"},
    },
}


class Devices:
    """Makes grids into those of devices, and keeps them."""

    def __init__(self) -> None:
        self.grids: list[WireGrid] = []

    def __call__(self, grid: Grid) -> Grid:
        self.grids.append(WireGrid(grid))
        return self.grids[-1]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    monkeypatch.setattr(grids, "is_http_grid", lambda grid: isinstance(grid, WireGrid))
    return Devices()


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_a_run_is_the_same_packed(
    settings: Settings, devices: Devices, options: dict[str, Any]
) -> None:
    plain = train(settings(**options), 4)
    packed = train(settings(**options), 4, wrap_grid=devices)
    assert metrics(packed) == metrics(plain)  # bytes too
    assert last_model(packed).keys() == last_model(plain).keys()
    for name, array in last_model(packed).items():
        assert array.tobytes() == last_model(plain)[name].tobytes()
    (grid,) = devices.grids
    for message in grid.sent:
        assert set(message.content) == {CONFIG, PACKED}
    for reply in grid.received:
        assert set(reply.content.array_records) <= {PACKED}
    assert sum(message.metadata.message_type == "train" for message in grid.sent) >= 4


def test_flowers_clipping_sees_the_model_alone(settings: Settings, devices: Devices) -> None:
    # The noise is not drawn from the run's seed, so that no two such runs are equal.
    options = {**QUICK, "num_rounds": 1, "dp.clipping": "client", "dp.norm": 0.01}
    train(settings(**options), 3, wrap_grid=devices)
    replies = [reply for reply in devices.grids[0].received if is_train([reply])]
    sent = next(message for message in devices.grids[0].sent if is_train([message]))
    start = unpack(sent.content).array_records[ARRAYS]
    norms = [update_norm(unpack(r.content).array_records[ARRAYS], start) for r in replies]
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)


class Garbling(ClientApp):
    """The app's client, of whom number 1 sends garbage in place of what it has packed.

    Parameters
    ----------
    kind : of the messages that it answers so.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __call__(self, message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == self._kind and context.node_config["partition-id"] == 1:
            reply.content[PACKED] = to_record({PACKED: np.zeros(8, np.uint8)})
        return reply


GARBAGE = "Client 1: its packed arrays are not in the format of this app"


def test_who_sends_garbage_has_failed(
    settings: Settings, devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**QUICK, "num_rounds": 1, "on_client_failure": "continue"}
    caplog.set_level("WARNING", logger="flwr")
    garbled = train(settings(**options), 3, wrap_grid=devices, client_app=Garbling("train"))
    assert f"1 client(s) failed in round 1: {GARBAGE}" in caplog.text

    def lose(call: int, replies: list[Message]) -> list[Message]:
        bad = FIRST_NODE_ID + 1 if is_train(replies) else None
        return [
            as_error(reply, "gone") if reply.metadata.src_node_id == bad else reply
            for reply in replies
        ]

    lost = train(settings(**options), 3, wrap_grid=lambda grid: MeddlingGrid(grid, lose))
    assert metrics(garbled) == metrics(lost)
    assert metrics(garbled)[0]["failures"] == 1
    for name, array in last_model(garbled).items():
        np.testing.assert_array_equal(array, last_model(lost)[name])
