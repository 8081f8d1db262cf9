"""Training on the server's labeled set only: the baseline for methods that also use clients."""

from __future__ import annotations

from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.federated.strategy import NO_TURNS


class ServerOnly(kit.Strategy):
    """The server trains on its labeled set as in bi-objective FedUL; no client takes part."""

    trains_at_server = True
    server_order = "after"
    goes_with = (
        kit.NOT_ALONE,
        NO_TURNS,
        kit.only_without("max-update-norm"),
        kit.only_without("learning-rate-schedule", "client-plateau", why="no client trains"),
        kit.only_with("evaluate", "global", why="no client trains"),
    )


METHOD = kit.Method(
    name="server-only",
    line="Trains on the server's labels alone; clients do nothing.",
    needs="labeled points at the server",
    paper="A Bi-Objective Optimization Approach for Enhancing FedUL, project report",
    strategy=ServerOnly,
    settings=(UnlabeledSetSettings, kit.ServerTrainingSettings),
    can_sum=False,
    server_alone=lambda _: True,
)
