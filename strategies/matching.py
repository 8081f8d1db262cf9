"""The server side of FedMatch and of what it is compared with: labels at clients or server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedul_flwr.config.matching import LabelPlaceSettings, SupervisedPartSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.server import ServerTrainingSettings
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.phases import count, number
from fedul_flwr.federated.registry import ClientReport
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import on_logits
from fedul_flwr.learning.weighted import scaled_cross_entropy


class Matching(MethodStrategy):
    """The base strategy on clients that have labels, or after training on the server's.

    With labels at the server it trains for one round's epochs before every round (FedMatch,
    algorithm 2). In the authors' code an epoch of pre-training takes the place of the first
    round's, so that the server has trained for t epochs before clients begin round t there, too.
    """

    _server_loss: float | None = None

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse settings of training at a server that has no labels."""
        super().validate(settings)
        options = settings.section("server", ServerTrainingSettings)
        if not cls.learns_at_server(settings) and options != ServerTrainingSettings():
            changed = options.model_dump(by_alias=True, exclude_defaults=True)
            key, value = next(iter(changed.items()))
            raise UserError(
                f"Setting server.{key} = {value!r} has no effect with scenario.labels-at = "
                "'clients', where the server does not train: leave it out."
            )

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether labels are at the server."""
        return settings.section("scenario", LabelPlaceSettings).labels_at == "server"

    def accept_client(self, report: ClientReport, answer: Content) -> None:
        """Take how many labels a client has."""
        report.num_labeled = count(answer, "num-labeled")

    def on_clients_changed(self, answers: Mapping[int, Content]) -> None:
        """See that somebody has labels.

        Raises
        ------
        UserError
            If nobody has.
        """
        labels = sum(number(told, "num-labeled") for told in answers.values())
        if not labels and not self.learns_at_server(self.settings):
            raise UserError(
                "No client has a label: there is nothing to learn classes from (with "
                "scenario.labels-at = 'server' the server learns them)."
            )

    def learn_labels(self, arrays: ArrayRecord, server_round: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on the server's labels, and the mean loss."""
        if self.trainer is None:
            raise RuntimeError(f"{type(self).__name__} needs a trainer")
        weight = self.settings.section("ssl", SupervisedPartSettings).supervised_weight
        return self.trainer.train(
            arrays, server_round, self.rate_factor, on_logits(scaled_cross_entropy(weight))
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Learn the server's labels, where it has some, before the round begins."""
        arrays = self.begin_with_labels(server_round, arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def begin_with_labels(self, server_round: int, arrays: ArrayRecord) -> ArrayRecord:
        """``arrays`` after the server's training before a round, or as they are without its
        labels."""
        if self.learns_at_server(self.settings):
            number_of_round = server_round + self.round_offset
            arrays, self._server_loss = self.learn_labels(arrays, number_of_round)
        return arrays

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The model as it is; adds the server's loss, where it trains, to the round's metrics."""
        if self._server_loss is not None:
            self.record.metrics["server-loss"] = self._server_loss
        return model
