"""DSQ at every client: the squared error of sets' mean predictions, less its bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPSettings
from fedul_flwr.learning.task import Loss

if TYPE_CHECKING:
    from torch import Tensor


def debiased_square_loss(logits: Tensor, targets: Tensor, priors: Tensor) -> Tensor:
    """Mean over the bags of a batch of k_b |p_b − Π_b|², less (mean k_b − 1) |p − Π|².

    p_b is the mean prediction of a bag of k_b points, and p and Π are mean prediction and class
    shares of all points of the batch. Of one bag it is |p_b − Π_b|².

    Parameters
    ----------
    logits : ``(n, K)``.
    targets : see :func:`fedul_flwr.learning.proportions.bags_of`.
    priors : ``(M, K)``, class shares of the sets.
    """
    import torch

    predicted, bags = logits.softmax(dim=1), learning.bags_of(targets)
    shares = torch.stack([priors[sets[0]] for _, sets in bags]).to(predicted)
    means = torch.stack([predicted[rows.to(predicted.device)].mean(dim=0) for rows, _ in bags])
    sizes = torch.tensor([len(rows) for rows, _ in bags]).to(predicted)
    pooled = predicted.mean(dim=0) - sizes @ shares / sizes.sum()
    errors = (means - shares).square().sum(dim=1)
    return (sizes * errors).mean() - (sizes - 1).mean() * pooled.square().sum()


class FedLLPDSQClient(FedLLPClient):
    """Trains on the debiased square loss (Li et al., COLT 2024)."""

    def loss(self) -> Loss:
        """That of a batch of bags."""
        import torch

        priors = torch.from_numpy(self.data.sets.priors)
        return lambda logits, targets: debiased_square_loss(logits, targets, priors)


METHOD = kit.Method(
    name="fedllp-dsq",
    line="FedLLP with the squared error of mean predictions, less its bias over a batch of bags.",
    needs="unlabeled sets with known class shares at clients",
    paper="Li et al., COLT 2024 (debiased square loss), each client its own sets",
    client=FedLLPDSQClient,
    settings=(kit.AdmissionSettings, FedLLPSettings),
)
