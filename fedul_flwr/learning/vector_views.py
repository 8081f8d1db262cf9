"""Random views of vectors: Gaussian noise, and features that are set to 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.learning.plan import LocalPlan


def augment_vectors(inputs: Tensor, plan: LocalPlan, rng: np.random.Generator) -> Tensor:
    """Augment ``(n, d)`` inputs as ``plan.augment`` says: ``noise``, ``dropout`` or not at all."""
    if plan.augment == "noise":
        drawn = torch.from_numpy(rng.standard_normal(tuple(inputs.shape)))
        return inputs + plan.noise * drawn.to(inputs.dtype)
    if plan.augment == "dropout":
        kept = torch.from_numpy(rng.random(tuple(inputs.shape)) >= plan.feature_dropout)
        return inputs * kept
    return inputs


def strong_vectors(noise: float, feature_dropout: float) -> Callable[[Tensor], Tensor]:
    """Makes a strong view of each vector ``(n, d)``: noise is added, then features are set to 0.

    Random numbers come from torch's own generator. Features that stay are not scaled up: a feature
    at 0 has its mean, if columns are standardized.
    """

    def view(inputs: Tensor) -> Tensor:
        noisy = inputs + noise * torch.randn_like(inputs)
        return noisy * (torch.rand_like(inputs) >= feature_dropout)

    return view
