"""Server side of FedMatch and the methods it is compared with: labels at clients or server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from flwr.app import ArrayRecord, Message

from fedul_flwr.config.method_settings import (
    LabelSourceSettings,
    SupervisedPartSettings,
)
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Floats
from fedul_flwr.federated.aggregation import mix
from fedul_flwr.federated.client_policy import ClientPolicy, LabeledClients
from fedul_flwr.federated.messages import ARRAYS
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
    _parallel: ArrayRecord | None = None

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether labels are at the server."""
        return settings[LabelSourceSettings].labels_at == "server"

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on λ_s · CE of the server's labels, and the loss."""
        if self.trainer is None:
            raise RuntimeError(f"{type(self).__name__} needs a trainer")
        weight = self.settings[SupervisedPartSettings].supervised_weight
        return self.trainer.train(
            arrays, round_number, self.rate_factor, on_logits(scaled_cross_entropy(weight))
        )

    def before_round(self, round_number: int, arrays: ArrayRecord) -> ArrayRecord:
        """As all methods; if it trains in parallel, from the model that clients receive."""
        if self.trains_in_turn(self.settings, "parallel"):
            self._parallel, self._server_loss = self.learn_labels(arrays, round_number)
        return super().before_round(round_number, arrays)

    def before_aggregate(self, replies: Sequence[Message], weights: Floats) -> None:
        """Give the model that the server has trained in parallel half of the weight.

        Half of it is added to half of each client's, so any mean of the clients' has it.
        """
        super().before_aggregate(replies, weights)
        if self._parallel is not None:
            for reply in replies:
                model = cast(ArrayRecord, reply.content[ARRAYS])
                reply.content[ARRAYS] = mix(model, self._parallel, 0.5)
