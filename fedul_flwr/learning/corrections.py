"""Changes of local training by federated optimizers and penalties; all of them are in this file.

A step goes along g + l1·sign(w) + mu·(w − w_global) + (c − c_i): the gradient g of the loss, the
L1 penalty, FedProx's proximal term (Li et al. 2020) and SCAFFOLD's correction (Karimireddy et al.
2020). FedNova (Wang et al. 2020) does not change steps, only counts them: :func:`local_normalizer`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedul_flwr.learning.plan import LocalPlan


def anchor_of(weights: Sequence[nn.Parameter], plan: LocalPlan) -> list[Tensor]:
    """Copies of the global ``weights`` for the proximal term; empty without it."""
    return [weight.detach().clone() for weight in weights] if plan.proximal_mu else []


@torch.no_grad()
def correct_gradients(
    weights: Sequence[nn.Parameter],
    plan: LocalPlan,
    anchor: Sequence[Tensor] = (),
    shift: Sequence[Tensor] = (),
) -> None:
    """Add penalties and corrections to the gradients, without a graph over all weights.

    Parameters
    ----------
    anchor : global weights, for the proximal term; empty leaves it out.
    shift : SCAFFOLD's c − c_i for every weight; empty leaves it out.
    """
    for index, weight in enumerate(weights):
        gradient = weight.grad
        if gradient is None:
            continue
        if plan.l1:
            _add_sign(gradient, weight, plan.l1)
        if anchor:
            gradient.add_(weight - anchor[index], alpha=plan.proximal_mu)
        if shift:
            gradient.add_(shift[index])


def local_normalizer(steps: int, plan: LocalPlan) -> float:
    """FedNova's a_i: distance after ``steps`` steps along a unit gradient, in step sizes.

    With plain SGD that is their number; momentum and the proximal term change it (Wang et al. 2020,
    section 4.1). It is valid for SGD, where (w_global − w_i)/(eta·a_i) is a mean of gradients.
    """
    velocity = distance = 0.0
    for _ in range(steps):
        pull = plan.proximal_mu * plan.learning_rate * distance
        velocity = plan.momentum * velocity + 1.0 - pull
        distance += velocity
    return distance


def _add_sign(gradient: Tensor, weight: Tensor, factor: float) -> None:
    """gradient += factor * sign(weight), in pieces that fit into the cache."""
    pieces = 1 + weight.numel() // 2**18
    if pieces == 1 or not (gradient.is_contiguous() and weight.is_contiguous()):
        gradient.add_(torch.sign(weight), alpha=factor)
        return
    gradients, weights = gradient.view(-1).chunk(pieces), weight.view(-1).chunk(pieces)
    for part, values in zip(gradients, weights, strict=True):
        part.add_(torch.sign(values), alpha=factor)
