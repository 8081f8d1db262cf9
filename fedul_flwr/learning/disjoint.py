"""Disjoint learning: labels train sigma, unlabeled points train psi (FedMatch, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import Batches
from fedul_flwr.learning.corrections import anchor_of, correct_gradients
from fedul_flwr.learning.decomposition import PSI, SIGMA, Decomposed, unlabeled_part
from fedul_flwr.learning.device import seed_draws
from fedul_flwr.learning.local import Loss, build_optimizer
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan

Consistency = Callable[[Network, Tensor], Tensor | None]
"""``(network, inputs (b, c, h, w)) -> loss`` of unlabeled points; ``None`` if all are masked."""


@dataclass(frozen=True)
class Penalties:
    """λ_L2 · ‖σ − ψ‖² + λ_L1 · ‖ψ‖₁ on psi, sums over all weights (eq. 5)."""

    l2: float = 0.0
    l1: float = 0.0

    @torch.no_grad()
    def add_gradients(self, sigma: Tensor, psi: Tensor, gradient: Tensor) -> None:
        """gradient += 2 λ_L2 (psi − sigma) + λ_L1 sign(psi), in place; all of one shape."""
        if self.l2:
            gradient.add_(psi, alpha=2 * self.l2).add_(sigma, alpha=-2 * self.l2)
        if self.l1:
            gradient.add_(torch.sign(psi), alpha=self.l1)


@dataclass(frozen=True)
class DisjointResult:
    """Mean losses on labeled and on unlabeled points, 0 without any; and the number of steps."""

    supervised: float
    consistency: float
    steps: int


class _Learner:
    """One part of the weights, and the optimizer that changes only this part."""

    def __init__(
        self, decomposed: Decomposed, part: str, plan: LocalPlan, penalties: Penalties
    ) -> None:
        self._whole = decomposed
        self._own = decomposed.part(part)
        self._sigma = decomposed.part(SIGMA) if part == PSI else []
        self._plan = plan
        self._penalties = penalties
        self._anchor = anchor_of(self._own, plan)
        self._optimizer = build_optimizer(self._own, plan)
        self._total = torch.zeros((), dtype=torch.float64, device=plan.device)
        self.steps = 0

    def step(self, loss: Tensor | None) -> None:
        """One step along the gradient of ``loss`` and the penalties; ``None`` has no gradient."""
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]
            self._total += loss.detach()
        self.steps += 1
        for weight, own in zip(self._whole.weights, self._own, strict=True):
            own.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = None
        if self._sigma:
            self._penalize()
        correct_gradients(self._own, self._plan, self._anchor)
        self._optimizer.step()
        self._optimizer.zero_grad()  # frees gradients as large as the model
        self._whole.compose()

    def _penalize(self) -> None:
        for psi, sigma in zip(self._own, self._sigma, strict=True):
            assert psi.grad is not None
            self._penalties.add_gradients(sigma, psi, psi.grad)

    @property
    def mean_loss(self) -> float:
        """Mean over the steps, 0 without any."""
        return float(self._total) / max(self.steps, 1)


def train_disjoint(
    decomposed: Decomposed,
    batches: Batches,
    supervised: Loss,
    consistency: Consistency,
    plan: LocalPlan,
    rng: np.random.Generator,
    penalties: Penalties = Penalties(),
) -> DisjointResult:
    """Train a round's epochs (algorithm 1, lines 15 to 20; algorithm 2, lines 19 to 23).

    For each batch sigma makes a step on the labeled points with psi fixed, then psi makes one on
    the unlabeled points with sigma fixed. Without a decomposition both steps change theta, and
    there are no penalties.

    Parameters
    ----------
    decomposed : the weights, changed in place.
    batches : labels are -1 for unlabeled points.
    supervised : loss of logits and labels of the labeled points.
    consistency : loss of the unlabeled points.

    Raises
    ------
    UserError
        If a loss is not finite.
    """
    parts = decomposed.parts
    label_part = SIGMA if SIGMA in parts else unlabeled_part(parts)
    on_labels = _Learner(decomposed, label_part, plan, penalties)
    on_rest = _Learner(decomposed, unlabeled_part(parts), plan, penalties)
    network = Network(decomposed.model, plan.device, plan.precision)
    decomposed.model.train()
    decomposed.model.zero_grad()
    seed_draws(plan.device, int(rng.integers(2**63)))  # for dropout and the consistency loss
    for _ in range(plan.local_epochs):
        for inputs, labels in batches(rng):
            known = labels >= 0
            placed = network.place(inputs)
            if known.any():
                logits = network(placed[known])
                on_labels.step(supervised(logits, labels[known].to(plan.device)))
            if not known.all():
                on_rest.step(consistency(network, placed[~known]))
    steps = on_labels.steps + on_rest.steps
    result = DisjointResult(on_labels.mean_loss, on_rest.mean_loss, steps)
    if not np.isfinite([result.supervised, result.consistency]).all():
        raise UserError("The local loss is no longer finite: lower learning-rate, check the data.")
    return result


def no_consistency(network: Network, inputs: Tensor) -> None:
    """Return ``None``: unlabeled points have no loss."""
    del network, inputs
