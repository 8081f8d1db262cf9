"""Virtual adversarial training (Miyato et al. 2018): predictions robust to small changes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.learning.network import Network, frozen_statistics


def unit(directions: Tensor) -> Tensor:
    """``(n, …)`` with every point's L2 norm 1; a point that is all zero stays so."""
    flat = directions.flatten(1)
    tiny = torch.finfo(flat.dtype).tiny
    # Divide by the largest entry first: squares of tiny gradients would underflow.
    flat = flat / flat.abs().amax(dim=1, keepdim=True).clamp(min=tiny)
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return flat.div(norms.clamp(min=tiny)).reshape(directions.shape)


def divergence(log_p: Tensor, logits: Tensor) -> Tensor:
    """Mean over points of KL(p ‖ softmax(logits)), both ``(n, K)``."""
    log_q = functional.log_softmax(logits, dim=1)
    return functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def adversarial_offset(
    network: Network, inputs: Tensor, log_p: Tensor, *, radius: float, xi: float
) -> Tensor:
    """Offsets r_adv ``(n, c, h, w)`` that move the predictions most, to second order.

    One power iteration from a random direction d: the gradient of KL(p ‖ f(x + r)) at r = xi·d is
    xi·H·d up to third order, for its gradient at 0 vanishes (Miyato et al. 2018, eq. 11 to 13).
    The gradient is taken with respect to r only; gradients of the weights do not change.

    Parameters
    ----------
    network : in at least float32. With xi = 1e-6, as in the code of the FedUL paper, f(x + xi·d)
        differs from f(x) by rounding only; so it would in bfloat16 with any small xi.
    inputs : ``(n, c, h, w)``.
    log_p : ``(n, K)``, log-probabilities at ``inputs``, without a graph.
    radius : L2 norm of every point's offset, in the units of inputs (black −1, white 1).
    xi : length of the finite-difference step, in the same units.
    """
    start = unit(torch.randn_like(inputs))
    step = (xi * start).requires_grad_()
    value = divergence(log_p, network(inputs + step))
    (gradient,) = torch.autograd.grad(value, step)
    found = unit(gradient)
    # If the predictions do not change at all, keep the random direction.
    moved = gradient.flatten(1).any(dim=1).view(-1, *[1] * (inputs.dim() - 1))
    return radius * torch.where(moved, found, start)


def virtual_adversarial_loss(
    network: Network, inputs: Tensor, logits: Tensor, *, radius: float, xi: float
) -> Tensor:
    """Mean of KL(f(x) ‖ f(x + r_adv)) over ``inputs``, whose ``logits`` are f(x).

    f(x) is a constant target. Batch norm's running statistics do not change: they describe points,
    not perturbed ones. Parameters as in :func:`adversarial_offset`.
    """
    log_p = functional.log_softmax(logits.detach(), dim=1)
    with frozen_statistics(network.model):
        offset = adversarial_offset(network, inputs, log_p, radius=radius, xi=xi)
        return divergence(log_p, network(inputs + offset))
