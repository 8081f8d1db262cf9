"""SCAFFOLD's server side (Karimireddy et al. 2020, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.arrays import Arrays
from fedul_flwr.data.types import Content, numbers
from fedul_flwr.federated.messages import CONFIG, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.learning.variates import CONTROL, USED_ROUND, VARIATE_ROUNDS


class Scaffold(FedAvg):
    """Averages models, and sends the server's variate c, which corrects clients' drift.

    Every message to a client has a record ``control`` with c; every reply one with the change of
    the client's own c_i (:func:`fedul_flwr.learning.scaffold.train_with_variates`). Then
    x ← x + eta·(mean of y_i − x) and c ← c + (|S|/C)·mean of Δc_i over the sampled S.

    c stays the mean of all C clients' variates even if replies are lost, late or refused. For that,
    a client's new c_i is only a proposal: the next message to this client says in which round the
    server last used an update of it, and the client continues from the c_i of that round.

    Parameters
    ----------
    server_learning_rate : eta; 1 takes the mean of the clients' models.
    option : ``"I"`` or ``"II"``, how clients update c_i.

    Attributes
    ----------
    clients : all C clients by node; ``None`` takes the nodes of the grid.
    control : c, an array for every weight; empty before the first round.
    used : the round in which the last used update of each client was made, by the client's number
        as text; 0 for none.
    """

    def __init__(
        self,
        *,
        server_learning_rate: float = 1.0,
        option: str = "II",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.server_learning_rate = server_learning_rate
        self.option = option
        self.clients: Mapping[int, int] | None = None
        self.control: Arrays = {}
        self.used: Arrays = {}
        self._start = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, plus c and, for each client, the round of its last used update."""
        if not self.control:
            self.control = {name: np.zeros_like(array.numpy()) for name, array in arrays.items()}
        self._count(self.clients or {node: node for node in grid.get_node_ids()})
        self._start = arrays
        config["scaffold-option"] = self.option
        record = to_record(self.control)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            base_config = cast(ConfigRecord, message.content[CONFIG])
            used = int(self.used[self._name(message.metadata.dst_node_id)])
            client_config = ConfigRecord({**base_config, USED_ROUND: used})
            message.content = RecordDict(
                {**message.content, CONTROL: record, CONFIG: client_config}
            )
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Update the model and c."""
        received = list(replies)
        changes = []
        for reply in received:
            if not reply.has_error():  # FedAvg expects only the model
                content = dict(reply.content)
                changes.append(cast(ArrayRecord, content.pop(CONTROL)))
                reply.content = RecordDict(content)
        mean, metrics = super().aggregate_train(server_round, received)
        if mean is None:
            return None, metrics
        for name, value in self.control.items():
            total = np.zeros(value.shape)
            for change in changes:  # not stacked: they may lie on disk
                total += change[name].numpy()
            self.control[name] = np.asarray(value + total / len(self.used), dtype=value.dtype)
        for reply in received:
            if not reply.has_error():
                self.used[self._name(reply.metadata.src_node_id)] = np.array(server_round)
        if self.server_learning_rate == 1.0:  # exactly FedAvg's mean, not x + (mean − x)
            return mean, metrics
        stepped: Arrays = {}
        for name, start in self._start.items():
            x = start.numpy()
            value = x + self.server_learning_rate * (mean[name].numpy() - x)
            stepped[name] = np.asarray(value, dtype=x.dtype)
        return to_record(stepped), metrics

    def set_clients(self, clients: Sequence[ClientRef]) -> None:
        """Store which client each node runs."""
        self.clients = {client.node_id: client.partition_id for client in clients}

    def check_client(self, client: int, answer: Content) -> None:
        """Reset all variates if a client no longer has the one that is part of c.

        This happens after a restart of its device, and on devices when a run resumes. The next
        message to the others says that none of their updates is in c.

        Parameters
        ----------
        client : its number.
        answer : has the rounds whose c_i the client still has.
        """
        rounds = numbers(answer, VARIATE_ROUNDS)
        used = int(self.used.get(str(client), 0))
        if used and used not in rounds:
            log(WARNING, "Client %s has lost its variate: SCAFFOLD begins anew with all 0.", client)
            self.control = {name: np.zeros_like(array) for name, array in self.control.items()}
            self.used = {name: np.array(0) for name in self.used}

    def _count(self, clients: Mapping[int, int]) -> None:
        """Add new clients, with c_i = 0, and rescale c to the mean over all clients."""
        before = len(self.used)
        for client in clients.values():
            self.used.setdefault(str(client), np.array(0))
        if 0 < before < len(self.used):
            share = before / len(self.used)
            self.control = {
                name: np.asarray(value * share, dtype=value.dtype)
                for name, value in self.control.items()
            }

    def _name(self, node: int) -> str:
        return str(node if self.clients is None else self.clients[node])
