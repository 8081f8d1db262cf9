"""Bi-objective FedUL, method 1: the aggregated model is fine-tuned on the server's labeled set."""

from __future__ import annotations

from fedul_flwr import method as kit
from fedul_flwr.strategies.fedul import FedULStrategy


class FedULFinetune(FedULStrategy):
    """FedUL whose aggregated model the server fine-tunes before it is broadcast again.

    The server trains after the clients (procedure C, method 1), with ``server.when = "before"``
    before them: the same but for the first and the last step.
    """

    trains_at_server = True
    server_order = "after"
    goes_with = (kit.NOT_ALONE, kit.only_without("server.when", "parallel"))


METHOD = kit.Method(
    name="fedul-finetune",
    line="FedUL with M1: the server trains the combined model on its labels after every round.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients; labeled points at the server",
    paper="A Bi-Objective Optimization Approach for Enhancing FedUL, project report",
    strategy=FedULFinetune,
    client="fedul_flwr.client_apps.fedul:FedULClient",
    settings=(kit.FedULSettings, kit.ServerTrainingSettings),
)
