"""Bi-objective FedUL, method 1: the aggregated model is fine-tuned on the server's labeled set."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord

from strategies.fedul import FedUL


class FedULFinetune(FedUL):
    """FedUL whose aggregated model the server fine-tunes before it is broadcast again."""

    trains_at_server = True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as FedUL does, then fine-tune (procedure C, method 1)."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        return self.train_at_server(arrays), metrics
