"""Local optimizers that use torch's kernels, without ``torch.optim.Optimizer``.

Constructing an ``Optimizer`` imports torch's compiler, which takes four seconds and 150 MB; on a
device every message starts a new process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd


class LocalOptimizer:
    """Updates ``weights`` by their gradients; a weight without a gradient does not change."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.weights = list(weights)

    def zero_grad(self) -> None:
        """Delete gradients and free their memory."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step of all weights."""
        held = [index for index, weight in enumerate(self.weights) if weight.grad is not None]
        self._step(held, [grad for w in self.weights if (grad := w.grad) is not None])

    def _step(self, held: list[int], gradients: list[Tensor]) -> None:
        raise NotImplementedError


class Adam(LocalOptimizer):
    """Adam (Kingma & Ba 2015) with beta = (0.9, 0.999) and epsilon = 1e-8, fused."""

    def __init__(
        self, weights: Sequence[nn.Parameter], *, learning_rate: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weights)
        self._rate, self._decay = learning_rate, weight_decay
        self._means = [torch.zeros_like(weight) for weight in self.weights]
        self._squares = [torch.zeros_like(weight) for weight in self.weights]
        # On the device of its weight, where fused kernels count steps.
        self._steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    def _step(self, held: list[int], gradients: list[Tensor]) -> None:
        adam(
            [self.weights[index] for index in held],
            gradients,
            [self._means[index] for index in held],
            [self._squares[index] for index in held],
            [],
            [self._steps[index] for index in held],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._rate,
            weight_decay=self._decay,
            eps=1e-8,
            maximize=False,
        )


class SGD(LocalOptimizer):
    """Stochastic gradient descent with heavy-ball momentum, fused."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weights)
        self._rate, self._momentum, self._decay = learning_rate, momentum, weight_decay
        # Zeros are the right start, as nothing is dampened: 0 * momentum + gradient.
        self._buffers: list[Tensor | None] = [
            torch.zeros_like(weight) if momentum else None for weight in self.weights
        ]

    def _step(self, held: list[int], gradients: list[Tensor]) -> None:
        sgd(
            [self.weights[index] for index in held],
            gradients,
            [self._buffers[index] for index in held],
            fused=True,
            weight_decay=self._decay,
            momentum=self._momentum,
            lr=self._rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
