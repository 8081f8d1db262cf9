"""Training on the server's labeled set alone: what methods with clients and labels must beat."""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid

from client_apps.local import LocalTrainingClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.disclosure import HELLO, Sent
from fedul_flwr.federated.strategy import MethodStrategy


class ServerOnly(MethodStrategy):
    """The server trains on its labeled set as in bi-objective FedUL; no client takes part."""

    trains_at_server = True
    returns_models = False

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """As others; there are no clients' models to evaluate."""
        super().validate(settings)
        if settings.learning_rate_patience_scope == "client":
            raise UserError(
                "Setting learning-rate-patience-scope = 'client': no client trains in method "
                f"{settings.method!r}."
            )
        if settings.evaluate == "local":
            raise UserError(
                f"Setting evaluate = 'local': no client trains in method {settings.method!r}."
            )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody."""
        del config, grid
        self.begin_round(server_round, arrays)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One more round of training at the server."""
        del server_round, replies
        return self.train_at_server(self.global_arrays), None

    def summary(self) -> None:
        """Say that there is no base at work."""
        log(INFO, "\t├──> %s: no client takes part", type(self).__name__)


class ServerOnlyClient(LocalTrainingClient):
    """Is there, and nobody asks it for anything."""

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """That it is there."""
        return [entry for entry in super().sends(settings) if entry.phase == HELLO]

    def update(self) -> dict[str, Arrays]:
        """None."""
        return {}
