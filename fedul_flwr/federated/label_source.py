"""Server side of FedMatch and the methods it is compared with: labels at clients or server."""

from __future__ import annotations

from flwr.app import ArrayRecord

from fedul_flwr.config.method_settings import (
    LabelSourceSettings,
    SupervisedPartSettings,
)
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client_policy import ClientPolicy, LabeledClients
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import on_logits
from fedul_flwr.learning.pseudo_label_task import scaled_cross_entropy


class LabelSourceStrategy(MethodStrategy):
    """The base strategy on clients that have labels, and training on the server's.

    With labels at the server it trains for one round's epochs in every round, by default before
    the clients (FedMatch, algorithm 2). In the authors' code an epoch of pre-training takes the
    place of the first round's, so that the server has trained for t epochs before clients begin
    round t there, too.
    """

    policy_class: type[ClientPolicy] = LabeledClients
    can_train_in_parallel = True

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether labels are at the server."""
        return settings[LabelSourceSettings].labels_at == "server"

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on λ_s · CE of the server's labels, and the loss."""
        assert self.trainer is not None  # as `learns_at_server` says
        weight = self.settings[SupervisedPartSettings].supervised_weight
        return self.trainer.train(
            arrays, round_number, self.rate_factor, on_logits(scaled_cross_entropy(weight))
        )
