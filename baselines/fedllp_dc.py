"""LLP-DC at every client: proportions of sets, and strong views trained on assigned classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPSettings

if TYPE_CHECKING:
    from torch import Tensor


class FedLLPDCSettings(kit.Settings):
    """Consistency with assigned classes in addition to label proportions (LLP-DC)."""

    table: ClassVar[str] = "fedllp-dc"
    strong_views: ClassVar[bool] = True
    weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the cross-entropy of strong views; 0 is FedLLP."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.6
    """Smallest probability that the weak view gives the assigned class, with which the strong view
    is trained on it."""


class FedLLPDCClient(FedLLPClient):
    """Adds consistency with classes that are assigned anew in every step (Ma et al. 2026)."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Proportion loss plus the weighted cross-entropy of strong views."""
        import torch
        from torch.nn import functional

        options = self.settings[FedLLPDCSettings]
        if options.weight == 0:
            return super().task(round)
        loss, strong_view = self.loss(), learning.fixed_strong_view(self.settings)
        shares = self.data.sets.priors
        confident: list[Tensor] = []

        def of_batch(network: learning.Network, batch: kit.Batch) -> Tensor:
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
        return kit.Task(self.batches(round), dropped, {kit.CONFIDENT_SHARE: share})


METHOD = kit.Method(
    name="fedllp-dc",
    line="FedLLP, and strong views trained on classes assigned under the shares of each set.",
    needs="unlabeled sets with known class shares at clients",
    paper="Ma et al., CVPR Findings 2026 (LLP-DC), each client its own sets",
    client=FedLLPDCClient,
    settings=(kit.AdmissionSettings, FedLLPSettings, FedLLPDCSettings),
)
