"""SCAFFOLD's server side (Karimireddy et al. 2020, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.bridge import to_record
from fedul_flwr.data.types import Arrays
from fedul_flwr.learning.scaffold import CONTROL


class Scaffold(FedAvg):
    """Averages models, and sends along the server's variate c that corrects clients' drift.

    Every message to a client carries a record ``control`` with c; every reply one with the change
    of the client's own c_i (:func:`fedul_flwr.learning.scaffold.train_with_variates`). Then
    x ← x + eta·(mean of y_i − x) and c ← c + (|S|/C)·mean of Δc_i over the sampled S, so that c
    stays the mean of all C clients' variates.

    Parameters
    ----------
    server_learning_rate : eta; 1 takes the mean of the clients' models.
    option : ``"I"`` or ``"II"``, how clients renew c_i.
    num_clients : C; ``None`` counts the nodes of the grid.
    """

    def __init__(
        self,
        *,
        server_learning_rate: float = 1.0,
        option: str = "II",
        num_clients: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.server_learning_rate = server_learning_rate
        self.option = option
        self.num_clients = num_clients
        self.control: Arrays = {}
        self._start = ArrayRecord()
        self._nodes = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages with c in them."""
        if not self.control:
            self.control = {name: np.zeros_like(array.numpy()) for name, array in arrays.items()}
        self._start = arrays
        self._nodes = self.num_clients or len(list(grid.get_node_ids()))
        config["scaffold-option"] = self.option
        record = to_record(self.control)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content[CONTROL] = record
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Step of the model, and of c."""
        received = list(replies)
        changes = [_take_control(reply) for reply in received if not reply.has_error()]
        mean, metrics = super().aggregate_train(server_round, received)
        if mean is None:
            return None, metrics
        for name, value in self.control.items():
            total = np.sum([change[name].numpy() for change in changes], axis=0, dtype=np.float64)
            self.control[name] = np.asarray(value + total / self._nodes, dtype=value.dtype)
        if self.server_learning_rate == 1.0:  # exactly FedAvg's mean, not x + (mean − x)
            return mean, metrics
        return self._step_to(mean), metrics

    def _step_to(self, mean: ArrayRecord) -> ArrayRecord:
        stepped: Arrays = {}
        for name, start in self._start.items():
            x = start.numpy()
            value = x + self.server_learning_rate * (mean[name].numpy() - x)
            stepped[name] = np.asarray(value, dtype=x.dtype)
        return to_record(stepped)


def _take_control(reply: Message) -> ArrayRecord:
    """Take the change of c_i out of a reply: FedAvg wants the model's record alone."""
    content = reply.content
    change = cast(ArrayRecord, content[CONTROL])
    reply.content = RecordDict({name: content[name] for name in content if name != CONTROL})
    return change
