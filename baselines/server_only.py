"""Training on the server's labeled set only: the baseline for methods that also use clients."""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr import method as kit


class ServerOnly(kit.Strategy):
    """The server trains on its labeled set as in bi-objective FedUL; no client takes part."""

    trains_at_server = True
    server_order = "after"
    goes_with = (
        kit.NOT_ALONE,
        kit.NO_TURNS,
        kit.only_without("max-update-norm"),
        kit.only_without("learning-rate-schedule", "client-plateau", why="no client trains"),
        kit.only_with("evaluate", "global", why="no client trains"),
    )

    def configure_round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send no message."""
        del config, grid
        self.begin_round(server_round, arrays)
        return []

    def aggregate_round(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One more round of training at the server."""
        del server_round, replies
        return self.after_train(self.global_arrays), None

    def summary(self) -> None:
        """Log that no base is used."""
        log(INFO, "\t├──> %s: no client takes part", type(self).__name__)


METHOD = kit.Method(
    name="server-only",
    line="Trains on the server's labels alone; clients do nothing.",
    needs="labeled points at the server",
    paper="A Bi-Objective Optimization Approach for Enhancing FedUL, project report",
    strategy=ServerOnly,
    disclosures="fedul_flwr.federated.disclosure:DESCRIBE_ONLY",
    settings=(kit.UnlabeledSetSettings, kit.ServerTrainingSettings),
    can_sum=False,
)
