"""LLP-DC at every client: proportions of sets, and strong views trained on assigned classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.baselines.fedllp import FedLLPClient
from fedul_flwr.config.method_settings import FedLLPDCSettings, FedLLPSettings
from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.assignment import assign_set
from fedul_flwr.learning.batches import Batch
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.dropout import with_dropout
from fedul_flwr.learning.local import Network, Round, Task, frozen_statistics
from fedul_flwr.learning.proportions import bags_of
from fedul_flwr.learning.views import fixed_strong_view


class FedLLPDCClient(FedLLPClient):
    """Adds consistency with classes that are assigned anew in every step (Ma et al. 2026)."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Proportion loss plus the weighted cross-entropy of strong views."""
        options = self.settings[FedLLPDCSettings]
        if options.weight == 0:
            return super().task(round)
        loss, strong_view = self.loss(), fixed_strong_view(self.settings)
        shares = self.data.sets.priors
        confident: list[Tensor] = []

        def of_batch(network: Network, batch: Batch) -> Tensor:
            inputs, targets = batch.inputs, batch.targets
            weak = network(inputs)
            # Running statistics must describe unchanged points, as in testing.
            with frozen_statistics(network.model):
                log_q = functional.log_softmax(network(strong_view(inputs)), dim=1)
            log_p = functional.log_softmax(weak.detach(), dim=1)
            predicted, labels = log_p.double().cpu().numpy(), torch.empty(len(weak)).long()
            for rows, sets in bags_of(targets):
                assigned = assign_set(predicted[rows.numpy()], shares[int(sets[0])])
                labels[rows] = torch.from_numpy(assigned)
            consistency, masked = fixmatch_loss(
                log_p, log_q, options.threshold, labels.to(weak.device)
            )
            confident.append(1 - masked)
            return loss(weak, targets) + options.weight * consistency

        def share() -> float:
            return float(torch.stack(confident).mean())

        dropped = with_dropout(of_batch, self.settings[FedLLPSettings].dropout)
        return Task(self.batches(round), dropped, {CONFIDENT_SHARE: share})
