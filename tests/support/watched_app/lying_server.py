"""Server app of the watched app that asks for round 1 once more as if it had never been.

Before that it waits for a file ``again`` beside the run's results: until then nodes can restart.
"""

import time
from pathlib import Path
from typing import Any

from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.server_app import app as own_app

app = own_app  # Flower looks for an assignment

_configure, _begin = Strategy.configure_train, SecureSums.begin
_first: dict[str, Any] = {}


def _configure_train(self: Any, number: int, arrays: Any, config: Any, grid: Any) -> Any:
    """The first model in every round, to clients that are set up anew."""
    if "model" in _first:
        while not Path(self.settings.output).with_name("again").exists():
            time.sleep(0.1)
        self.registry.failed.update(self.registry.clients)
    return _configure(self, number, _first.setdefault("model", arrays), config, grid)


def _as_round_1(self: Any, grid: Any, messages: Any, _: int, buffers: Any) -> Any:
    for message in messages:
        message.content["config"]["server-round"] = 1
    self._members = {}  # keys are made anew
    return _begin(self, grid, messages, 1, buffers)


Strategy.configure_train = _configure_train  # type: ignore[method-assign]
SecureSums.begin = _as_round_1  # type: ignore[method-assign]
