"""Supervised learning with the given labels, without unlabeled points: the lower bound in
FedMatch's comparison, at the clients or at the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid

from baselines.all_labels import AllLabelsClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.label_split import who_has_labels
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.federated.client_policy import GivenLabelClients
from fedul_flwr.federated.disclosure import HELLO, Sent
from fedul_flwr.federated.label_place import LabelPlaceStrategy


class GivenLabels(LabelPlaceStrategy):
    """The base strategy on the clients that have labels, or training at the server only.

    With labels at the server it trains as before every round of FedMatch, and no client takes part.
    With labels at clients the clients of a round are sampled from those that have some.
    """

    policy_class = GivenLabelClients

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Also refuse settings about clients' models if labels are at the server."""
        super().validate(settings)
        if not cls.learns_at_server(settings):
            return
        for key, value in (
            ("evaluate", settings.evaluate if settings.evaluate == "local" else None),
            ("max-update-norm", settings.max_update_norm or None),
        ):
            if value is not None:
                raise UserError(
                    f"Setting {key} = {value!r}: no client trains in method {settings.method!r} "
                    "with scenario.labels-at = 'server'."
                )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """With labels at the server, train there and send no message."""
        if not self.learns_at_server(self.settings):
            return super().configure_train(server_round, arrays, config, grid)
        arrays = self.before_round(server_round + self.round_offset, arrays)
        self.begin_round(server_round, arrays)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The base's mean, or the model that the server has trained."""
        if not self.learns_at_server(self.settings):
            return super().aggregate_train(server_round, replies)
        return self.after_train(self.global_arrays), None

    def summary(self) -> None:
        """Log which base is used, or that none is."""
        if not self.learns_at_server(self.settings):
            super().summary()
            return
        log(INFO, "\t├──> %s: no client takes part", type(self).__name__)


class GivenLabelsClient(AllLabelsClient):
    """Trains on its labeled points only."""

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries; with labels at the server only those of registration."""
        sent = super().sends(settings)
        if who_has_labels(settings) == "server":
            return [entry for entry in sent if entry.phase == HELLO]
        return sent

    def update(self) -> Mapping[str, Arrays]:
        """Inherited arrays; empty with labels at the server."""
        return {} if who_has_labels(self.settings) == "server" else super().update()

    def training_data(self) -> TrainingData:
        """All labeled points; they do not arrive in steps."""
        positions = self.labeled
        return TrainingData(
            self.data.images, self.data.points[positions], self.data.labels[positions]
        )
