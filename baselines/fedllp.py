"""FedLLP and FedLLP-VAT: trains the mean prediction of a set to equal its class priors."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedul_flwr.config.baselines import FedLLPSettings, FedLLPVATSettings
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import AnySetsData
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.adversarial import virtual_adversarial_loss
from fedul_flwr.learning.batches import set_batches
from fedul_flwr.learning.dropout import with_dropout
from fedul_flwr.learning.local import Loss, on_logits
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.proportions import ProportionLoss
from fedul_flwr.learning.schedules import ramp_up
from fedul_flwr.learning.task import LocalTask, Round


class FedLLP(MethodStrategy):
    """The base strategy, unchanged; clients match proportions."""

    policy_class = SetAdmission


class FedLLPClient(MethodClient[AnySetsData]):
    """Trains on label proportions (FedUL paper, eq. 18), one step per set; ignores batch-size."""

    data_class = AnySetsData

    def loss(self) -> Loss:
        """Cross-entropy between a set's class priors and its mean prediction."""
        return ProportionLoss(torch.from_numpy(self.data.sets.priors))

    def task(self, round: Round) -> LocalTask:
        """Every set as one batch, because a part of a set has other proportions."""
        sets, dropout = self.data.sets, self.settings[FedLLPSettings].dropout
        batches = set_batches(sets.inputs, sets.points, sets.sets, round.plan)
        objective = with_dropout(on_logits(self.loss()), dropout)
        return LocalTask(len(sets.points), batches, objective)


class FedLLPVATClient(FedLLPClient):
    """Adds virtual adversarial training (FedUL paper, eq. 19 and 20; Tsai & Lin 2020)."""

    def task(self, round: Round) -> LocalTask:
        """Proportion loss plus alpha times the largest change of predictions near each point."""
        task, options = super().task(round), self.settings[FedLLPVATSettings]
        alpha = options.alpha * ramp_up(round.number, options.ramp_up_rounds)
        if alpha == 0:
            return task
        loss = self.loss()

        def objective(network: Network, inputs: Tensor, sets: Tensor) -> Tensor:
            # The adversarial step is a small difference of predictions: not in bfloat16.
            wide = network.wide()
            logits = wide(inputs)
            adversarial = virtual_adversarial_loss(
                wide, inputs, logits, radius=options.radius, xi=options.xi
            )
            return loss(logits, sets) + alpha * adversarial

        dropout = self.settings[FedLLPSettings].dropout
        return replace(task, objective=with_dropout(objective, dropout))
