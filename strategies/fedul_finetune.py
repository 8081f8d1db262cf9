"""Bi-objective FedUL, method 1: the aggregated model is fine-tuned on the server's labeled set."""

from __future__ import annotations

from flwr.app import ArrayRecord

from fedul_flwr.strategies.fedul import FedULStrategy


class FedULFinetune(FedULStrategy):
    """FedUL whose aggregated model the server fine-tunes before it is broadcast again."""

    trains_at_server = True

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """Fine-tune the aggregated model (procedure C, method 1)."""
        return self.train_at_server(model)
