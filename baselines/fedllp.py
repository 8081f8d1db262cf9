"""FedLLP and FedLLP-VAT: trains the mean prediction of a set to equal its class priors."""

from __future__ import annotations

import torch
from torch import Tensor

from client_apps.unlabeled_sets import UnlabeledSetsClient
from fedul_flwr.config.baselines import FedLLPSettings, FedLLPVATSettings
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.adversarial import virtual_adversarial_loss
from fedul_flwr.learning.batches import Batches, set_batches
from fedul_flwr.learning.dropout import with_dropout
from fedul_flwr.learning.local import Loss, Objective
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.proportions import ProportionLoss
from fedul_flwr.learning.schedules import ramp_up


class FedLLP(MethodStrategy):
    """The base strategy, unchanged; clients match proportions."""

    policy_class = SetAdmission


class FedLLPClient(UnlabeledSetsClient):
    """Trains on label proportions (FedUL paper, eq. 18), one step per set; ignores batch-size."""

    min_sets = 1

    @property
    def dropout(self) -> float:
        """Probability of dropout between layers."""
        return self.settings[FedLLPSettings].dropout

    def objective(self, server_round: int) -> Objective:
        """The loss of the network, with dropout if set."""
        return with_dropout(super().objective(server_round), self.dropout)

    def loss(self) -> Loss:
        """Cross-entropy between a set's class priors and its mean prediction."""
        return ProportionLoss(torch.from_numpy(self.sets.priors))

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Every set as one batch, because a part of a set has other proportions."""
        return set_batches(data.images, data.points, data.targets, plan)


class FedLLPVATClient(FedLLPClient):
    """Adds virtual adversarial training (FedUL paper, eq. 19 and 20; Tsai & Lin 2020)."""

    def objective(self, server_round: int) -> Objective:
        """Proportion loss plus alpha times the largest change of predictions near each point."""
        options = self.settings[FedLLPVATSettings]
        alpha = options.alpha * ramp_up(server_round, options.ramp_up_rounds)
        if alpha == 0:
            return super().objective(server_round)
        loss = self.loss()

        def objective(network: Network, inputs: Tensor, sets: Tensor) -> Tensor:
            # The adversarial step is a small difference of predictions: not in bfloat16.
            wide = network.wide()
            logits = wide(inputs)
            adversarial = virtual_adversarial_loss(
                wide, inputs, logits, radius=options.radius, xi=options.xi
            )
            return loss(logits, sets) + alpha * adversarial

        return with_dropout(objective, self.dropout)
