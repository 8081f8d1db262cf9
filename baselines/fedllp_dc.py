"""LLP-DC at every client: proportions of sets, and strong views trained on assigned classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedul_flwr import learning
from fedul_flwr.baselines.fedllp import FedLLPClient
from fedul_flwr.config.method_settings import FedLLPDCSettings, FedLLPSettings
from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Batch, Round, Task

if TYPE_CHECKING:
    from torch import Tensor


class FedLLPDCClient(FedLLPClient):
    """Adds consistency with classes that are assigned anew in every step (Ma et al. 2026)."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Proportion loss plus the weighted cross-entropy of strong views."""
        import torch
        from torch.nn import functional

        options = self.settings[FedLLPDCSettings]
        if options.weight == 0:
            return super().task(round)
        loss, strong_view = self.loss(), learning.fixed_strong_view(self.settings)
        shares = self.data.sets.priors
        confident: list[Tensor] = []

        def of_batch(network: learning.Network, batch: Batch) -> Tensor:
            inputs, targets = batch.inputs, batch.targets
            weak = network(inputs)
            # Running statistics must describe unchanged points, as in testing.
            with learning.frozen_statistics(network.model):
                log_q = functional.log_softmax(network(strong_view(inputs)), dim=1)
            log_p = functional.log_softmax(weak.detach(), dim=1)
            predicted, labels = log_p.double().cpu().numpy(), torch.empty(len(weak)).long()
            for rows, sets in learning.bags_of(targets):
                assigned = learning.assign_set(predicted[rows.numpy()], shares[int(sets[0])])
                labels[rows] = torch.from_numpy(assigned)
            consistency, masked = learning.fixmatch_loss(
                log_p, log_q, options.threshold, labels.to(weak.device)
            )
            confident.append(1 - masked)
            return loss(weak, targets) + options.weight * consistency

        def share() -> float:
            return float(torch.stack(confident).mean())

        dropped = learning.with_dropout(of_batch, self.settings[FedLLPSettings].dropout)
        return Task(self.batches(round), dropped, {CONFIDENT_SHARE: share})
