"""The model in training, as an objective sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.learning.bfloat16 import has_strides
from fedul_flwr.learning.machine import autocast, choose_dtype


class Network:
    """Maps inputs ``(n, c, h, w)`` to logits ``(n, K)`` in the arithmetic of the round.

    Parameters
    ----------
    model : the class model.
    device, precision : where and in what it computes
        (:func:`~fedul_flwr.learning.machine.choose_dtype`).
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: str) -> None:
        self.model = model
        self._device, self._precision = device, precision
        self._dtype = choose_dtype(precision, model, device)
        self._strided = has_strides(model)
        self._wide = torch.float64 if self._dtype == torch.float64 else torch.float32

    def place(self, inputs: Tensor) -> Tensor:
        """``inputs`` where and as the model takes them."""
        return inputs.to(self._device, self._wide)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Logits; losses and comparisons of them are never in bfloat16."""
        with autocast(self._device, self._dtype, strided=self._strided):
            logits: Tensor = self.model(self._never_alone(inputs))
        return logits[: len(inputs)].to(self._wide)

    def both(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of both heads of a model with two; the same twice of one with one."""
        heads = getattr(self.model, "both", None)
        if heads is None:
            logits = self(inputs)
            return logits, logits
        with autocast(self._device, self._dtype, strided=self._strided):
            first, second = heads(self._never_alone(inputs))
        return first[: len(inputs)].to(self._wide), second[: len(inputs)].to(self._wide)

    def _never_alone(self, inputs: Tensor) -> Tensor:
        """Batch norm has no variance of one point in training; twice the point has the same."""
        alone = self.model.training and len(inputs) == 1
        return torch.cat([inputs, inputs]) if alone else inputs

    def twin(self, model: nn.Module) -> Network:
        """Another model in the same arithmetic."""
        return Network(model, self._device, self._precision)

    def wide(self) -> Network:
        """The same network without bfloat16, for differences that it would round away."""
        wide = "float64" if self._precision == "float64" else "float32"
        return Network(self.model, self._device, wide)


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Within, batch norm uses the statistics of the batch and leaves its running ones alone."""
    layers = [layer for layer in _batch_norms(model) if layer.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def has_batch_norm(model: nn.Module) -> bool:
    """Whether, in training, the output for a point depends on the others of its batch."""
    return any(True for _ in _batch_norms(model))


def _batch_norms(model: nn.Module) -> Iterator[_BatchNorm]:
    return (module for module in model.modules() if isinstance(module, _BatchNorm))
