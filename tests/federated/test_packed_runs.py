"""Clients and whole runs whose messages are packed: nothing else is different."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedul_flwr.client_app import app
from fedul_flwr.federated import grid as grids
from fedul_flwr.federated.messages import CONFIG, PACKED, to_record
from tests.support.runs import last_model, metrics, same, train
from tests.support.settings import QUICK, Settings
from tests.support.wire_grid import WireGrid

pytestmark = pytest.mark.usefixtures("identity")
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
    assert same(packed, plain)
    (grid,) = devices.grids
    for message in grid.sent:
        assert set(message.content) == {CONFIG, PACKED}
    for reply in grid.received:
        assert set(reply.content.array_records) <= {PACKED}
    assert sum(message.metadata.message_type == "train" for message in grid.sent) >= 4


class Garbling(ClientApp):
    """The app's client, of whom number 1 sends garbage in place of what it has packed."""

    def __call__(self, message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            reply.content[PACKED] = to_record({PACKED: np.zeros(8, np.uint8)})
        return reply


def test_who_sends_garbage_has_failed(
    settings: Settings, devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**QUICK, "num_rounds": 1, "on_client_failure": "continue"}
    caplog.set_level("WARNING", logger="flwr")
    garbled = train(settings(**options), 3, wrap_grid=devices, client_app=Garbling())
    assert "1 client(s) failed in round 1: Client 1: its packed arrays are not in" in caplog.text
    assert metrics(garbled)[0]["failures"] == 1
