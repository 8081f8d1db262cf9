"""Disjoint learning: labels train sigma, unlabeled points train psi (FedMatch, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.learning import lanes
from fedul_flwr.learning.device import seed_draws
from fedul_flwr.learning.local import anchor_of, build_optimizer, correct_gradients, require_finite
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.parts import PSI, SIGMA, Parts, unlabeled_part
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Batch, Batches, Loss


class Decomposed:
    """A model in training whose weights are the sum of its parts.

    The model's weights are always the sum, so d loss / d sigma = d loss / d psi = d loss / d theta:
    one backward pass gives the gradient of the part that is trained.

    Parameters
    ----------
    model : on its device; its weights and floating buffers are overwritten.
    parts : the parts that sum to its weights.
    """

    def __init__(self, model: nn.Module, parts: Parts) -> None:
        self.model = model
        self._weights = dict(model.named_parameters())
        self._buffers = {
            name: buffer
            for name, buffer in model.named_buffers()
            if name in parts[unlabeled_part(parts)]
        }
        with torch.no_grad():
            for name, buffer in self._buffers.items():
                buffer.copy_(_tensor(parts[unlabeled_part(parts)][name]))
            # Each like its weight, with the same memory format.
            self._parts = {
                part: {
                    name: nn.Parameter(torch.empty_like(weight).copy_(_tensor(arrays[name])))
                    for name, weight in self._weights.items()
                }
                for part, arrays in parts.items()
            }
        self.compose()

    def part(self, name: str) -> list[nn.Parameter]:
        """The tensors of a part, in the order of :attr:`weights`."""
        return list(self._parts[name].values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(self._parts)

    @property
    def weights(self) -> list[nn.Parameter]:
        """The model's own weights, which are the sum."""
        return list(self._weights.values())

    @torch.no_grad()
    def compose(self) -> None:
        """Set the model's weights to the sum of the current parts."""
        for name, weight in self._weights.items():
            first, *rest = (part[name] for part in self._parts.values())
            weight.copy_(torch.add(first, rest[0]) if rest else first)

    def dump(self) -> Parts:
        """The parts as new arrays."""
        dumped = {
            part: {name: _array(tensor) for name, tensor in tensors.items()}
            for part, tensors in self._parts.items()
        }
        statistics = {name: _array(buffer) for name, buffer in self._buffers.items()}
        dumped[unlabeled_part(dumped)] |= statistics
        return dumped


def _tensor(array: NDArray[Any]) -> Tensor:
    # Copy a read-only array, as torch warns about those.
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _array(tensor: Tensor) -> NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy(), order="C")


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
class DisjointLoss:
    """What trains which part.

    Attributes
    ----------
    supervised : loss of logits and labels of the labeled points, for sigma.
    consistency : loss of the unlabeled points, for psi.
    penalties : on psi.
    """

    supervised: Loss
    consistency: Consistency
    penalties: Penalties = Penalties()


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
        self._part = decomposed.part(part)
        self._sigma = decomposed.part(SIGMA) if part == PSI else []
        self._penalties = penalties
        self._anchor = anchor_of(self._part, plan)
        self._optimizer = build_optimizer(self._part, plan)
        self._plan = replace(plan, learning_rate=0.0)  # the optimizer has it
        self.total = torch.zeros((), dtype=torch.float64, device=plan.device)

    def step(self, loss: Tensor | None) -> None:
        """One step along the gradient of ``loss`` and the penalties; ``None`` has no gradient."""
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]
            self.total += loss.detach()
        for weight, part_weight in zip(self._whole.weights, self._part, strict=True):
            part_weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = None
        for psi, sigma in zip(self._part, self._sigma, strict=True) if self._sigma else ():
            assert psi.grad is not None
            self._penalties.add_gradients(sigma, psi, psi.grad)
        correct_gradients(self._part, self._plan, self._anchor)
        self._optimizer.step()
        self._optimizer.zero_grad()  # frees gradients as large as the model
        self._whole.compose()


class _Step:
    """A step of each part on a batch that has points for it."""

    def __init__(self, decomposed: Decomposed, loss: DisjointLoss, plan: LocalPlan) -> None:
        parts = decomposed.parts
        label_part = SIGMA if SIGMA in parts else unlabeled_part(parts)
        self._loss = loss
        self.on_labels = _Learner(decomposed, label_part, plan, loss.penalties)
        self.on_rest = _Learner(decomposed, unlabeled_part(parts), plan, loss.penalties)
        self.network = Network(decomposed.model, plan.device, plan.precision)

    def __call__(self, batch: Batch) -> None:
        if len(batch.labeled):
            value = self._loss.supervised(self.network(batch.labeled), batch.labels)
            self.on_labels.step(value)
        if len(batch.unlabeled):
            self.on_rest.step(self._loss.consistency(self.network, batch.unlabeled))


def train_disjoint(
    decomposed: Decomposed,
    batches: Batches,
    loss: DisjointLoss,
    plan: LocalPlan,
    rng: np.random.Generator,
) -> DisjointResult:
    """Train a round's epochs (algorithm 1, lines 15 to 20; algorithm 2, lines 19 to 23).

    For each batch sigma makes a step on the labeled points with psi fixed, then psi makes one on
    the unlabeled points with sigma fixed. Without a decomposition both steps change theta, and
    there are no penalties.

    Parameters
    ----------
    decomposed : the weights, changed in place.
    batches : labeled points first.
    """
    step = _Step(decomposed, loss, plan)
    decomposed.model.train()
    decomposed.model.zero_grad()
    seed_draws(plan.device, int(rng.integers(2**63)))  # for dropout and the consistency loss
    steps = np.zeros(2, np.int64)
    with lanes.recorded(step, decomposed.model) as run:
        for batch in batches.of_round(plan, rng):
            run(batch.to(step.network))
            steps += [len(batch.labeled) > 0, len(batch.unlabeled) > 0]
    lanes.wait()
    of_labels, of_rest = (
        float(part.total) / max(int(count), 1)
        for part, count in zip((step.on_labels, step.on_rest), steps, strict=True)
    )
    result = DisjointResult(of_labels, of_rest, int(steps.sum()))
    require_finite(result.supervised, result.consistency)
    return result


def no_consistency(network: Network, inputs: Tensor) -> None:
    """Return ``None``: unlabeled points have no loss."""
    del network, inputs
