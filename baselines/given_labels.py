"""Supervised learning with the labels that there are, and no unlabeled point: the floor of
FedMatch's comparison, at the clients or at the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid

from baselines.all_labels import AllLabelsClient
from client_apps.local import TrainingData
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.label_split import who_has_labels
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.disclosure import HELLO, Sent
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.phases import number
from fedul_flwr.federated.registry import ClientRef
from strategies.matching import Matching


class GivenLabels(Matching):
    """The base strategy on the clients that have labels, or the server alone on its own.

    With labels at the server it trains as it does before every round of FedMatch, and no client
    takes part. With labels at clients the clients of a round are drawn from those that have some.
    """

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """As others; with labels at the server there are no clients' models."""
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

    def on_clients_changed(self, answers: Mapping[int, Content]) -> None:
        """As others; remember who has labels."""
        super().on_clients_changed(answers)
        labeled = {part for part, told in answers.items() if number(told, "num-labeled")}
        self._labeled = [c for c in self.registry.clients if c.partition_id in labeled]

    def sample(self, round_number: int) -> list[ClientRef]:
        """As many as ``fraction-train`` says of all, drawn from those that have labels."""
        count = min(self.registry.sample_size, len(self._labeled))
        return sorted(self.registry.draw(self._labeled, count, "sample", round_number))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """With labels at the server, train there and ask nobody."""
        if not self.learns_at_server(self.settings):
            return super().configure_train(server_round, arrays, config, grid)
        self.begin_round(server_round, self.begin_with_labels(server_round, arrays))
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The base's mean, or what the server has trained."""
        if not self.learns_at_server(self.settings):
            return super().aggregate_train(server_round, replies)
        return self.after_train(self.global_arrays), None

    def summary(self) -> None:
        """Say so where there is no base at work."""
        if not self.learns_at_server(self.settings):
            super().summary()
            return
        log(INFO, "\t├──> %s: no client takes part", type(self).__name__)


class GivenLabelsClient(AllLabelsClient):
    """Trains on its labeled points alone."""

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """As others; with labels at the server, that it is there."""
        sent = super().sends(settings)
        if who_has_labels(settings) == "server":
            return [entry for entry in sent if entry.phase == HELLO]
        return sent

    def update(self) -> Mapping[str, Arrays]:
        """As others; nothing with labels at the server."""
        return {} if who_has_labels(self.settings) == "server" else super().update()

    def training_data(self) -> TrainingData:
        """The labeled points, which are all there from the start."""
        positions = self.labeled
        return TrainingData(
            self.data.images, self.data.points[positions], self.data.labels[positions]
        )
