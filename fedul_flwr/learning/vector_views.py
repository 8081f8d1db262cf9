"""Random views of vectors: Gaussian noise, features set to 0, and shares of other vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.learning.plan import LocalPlan


def augment_vectors(inputs: Tensor, plan: LocalPlan, rng: np.random.Generator) -> Tensor:
    """Augment ``(n, d)`` inputs as ``plan.augment`` says, or not at all."""
    if plan.augment == "noise":
        drawn = torch.from_numpy(rng.standard_normal(tuple(inputs.shape)))
        return inputs + plan.noise * drawn.to(inputs.dtype)
    if plan.augment == "dropout":
        kept = torch.from_numpy(rng.random(tuple(inputs.shape)) >= plan.feature_dropout)
        return inputs * kept
    if plan.augment == "mixup":
        shares = plan.mixup * torch.from_numpy(rng.random(len(inputs)))
        return mixed(inputs, torch.from_numpy(rng.permutation(len(inputs))), shares)
    return inputs


def mixed(inputs: Tensor, others: Tensor, shares: Tensor) -> Tensor:
    """(1 − s_i)·x_i + s_i·x_{o_i}: every vector with a share of another one (Verma et al. 2021).

    The vector keeps its own label or target, unlike in mixup of points with their labels.

    Parameters
    ----------
    inputs : ``(n, d)``.
    others : int64 ``(n,)``, o, rows of ``inputs``.
    shares : ``(n,)``, s, between 0 and 1/2.
    """
    return torch.lerp(inputs, inputs[others], shares.to(inputs.dtype)[:, None])


def strong_vectors(
    noise: float, feature_dropout: float, mixup: float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Makes a strong view of each vector ``(n, d)``: mixup, then noise, then features set to 0.

    Random numbers come from torch's own generator. Features that stay are not scaled up: a feature
    at 0 has its mean, if columns are standardized. Without ``mixup`` nothing is drawn for it.
    """

    def view(inputs: Tensor) -> Tensor:
        if mixup:
            others = torch.randperm(len(inputs), device=inputs.device)
            inputs = mixed(inputs, others, mixup * torch.rand(len(inputs), device=inputs.device))
        noisy = inputs + noise * torch.randn_like(inputs)
        return noisy * (torch.rand_like(inputs) >= feature_dropout)

    return view
