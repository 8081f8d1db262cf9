"""Server side of FedMatch and the methods it is compared with: labels at clients or server."""

from __future__ import annotations

from flwr.app import ArrayRecord

from fedul_flwr.config.method_settings import (
    LabelPlaceSettings,
    SupervisedPartSettings,
)
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client_policy import ClientPolicy, LabeledClients
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import on_logits
from fedul_flwr.learning.pseudo_label_task import scaled_cross_entropy


class LabelPlaceStrategy(MethodStrategy):
    """The base strategy on clients that have labels, or after training on the server's.

    With labels at the server it trains for one round's epochs before every round (FedMatch,
    algorithm 2). In the authors' code an epoch of pre-training takes the place of the first
    round's, so that the server has trained for t epochs before clients begin round t there, too.
    """

    policy_class: type[ClientPolicy] = LabeledClients
    _server_loss: float | None = None

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether labels are at the server."""
        return settings[LabelPlaceSettings].labels_at == "server"

    def learn_labels(self, arrays: ArrayRecord, server_round: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on the server's labels, and the mean loss."""
        if self.trainer is None:
            raise RuntimeError(f"{type(self).__name__} needs a trainer")
        weight = self.settings[SupervisedPartSettings].supervised_weight
        return self.trainer.train(
            arrays, server_round, self.rate_factor, on_logits(scaled_cross_entropy(weight))
        )

    def before_round(self, round_number: int, arrays: ArrayRecord) -> ArrayRecord:
        """``arrays`` after the server's training, where it has labels."""
        if self.learns_at_server(self.settings):
            arrays, self._server_loss = self.learn_labels(arrays, round_number)
        return arrays

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The model as it is; adds the server's loss, where it trains, to the round's metrics."""
        if self._server_loss is not None:
            self.record.metrics["server-loss"] = self._server_loss
        return model
