"""Bi-objective FedUL, method 1: the aggregated model is fine-tuned on the server's labeled set."""

from __future__ import annotations

from fedul_flwr.strategies.fedul import FedULStrategy


class FedULFinetune(FedULStrategy):
    """FedUL whose aggregated model the server fine-tunes before it is broadcast again.

    The server trains after the clients (procedure C, method 1), with ``server.when = "before"``
    before them: the same but for the first and the last step.
    """

    trains_at_server = True
    server_order = "after"
    can_train_in_parallel = False
