"""A model in a client's training: its device, its precision, its batch norm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.learning.device import autocast, choose_dtype, has_strides
from fedul_flwr.models.parts import feature_layer, inputs_of


class Network:
    """Maps inputs ``(n, c, h, w)`` to logits ``(n, K)`` in the precision of the run.

    Parameters
    ----------
    model : the class model.
    device, precision : its device, and its number format
        (:func:`~fedul_flwr.learning.device.choose_dtype`).
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: str) -> None:
        self.model = model
        self._device, self._precision = device, precision
        self._dtype = choose_dtype(precision, model, device)
        self._strided = has_strides(model)
        self._wide = torch.float64 if self._dtype == torch.float64 else torch.float32

    def to_device(self, inputs: Tensor) -> Tensor:
        """``inputs`` on the model's device, in float32 or float64."""
        return inputs.to(self._device, self._wide)

    def predict(self, inputs: Tensor) -> Tensor:
        """Posteriors ``(n, K)``, without a gradient."""
        with torch.no_grad():
            return self(inputs).softmax(dim=1)

    def frozen_statistics(self) -> AbstractContextManager[None]:
        """Context in which batch norm's running statistics do not change."""
        return frozen_statistics(self.model)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Logits, never in bfloat16, so that losses are not either."""
        with autocast(self._device, self._dtype, strided=self._strided):
            logits: Tensor = self.model(self._never_alone(inputs))
        return logits[: len(inputs)].to(self._wide)

    def both(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of both heads of a model; of a model with one head the same logits twice."""
        heads = getattr(self.model, "both", None)
        if heads is None:
            logits = self(inputs)
            return logits, logits
        with autocast(self._device, self._dtype, strided=self._strided):
            first, second = heads(self._never_alone(inputs))
        return first[: len(inputs)].to(self._wide), second[: len(inputs)].to(self._wide)

    def features_and_logits(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs ``(n, d)`` of the last linear layer, and logits, in one pass."""
        with inputs_of(feature_layer(self.model)) as features:
            logits = self(inputs)
        return features[-1][: len(inputs)].to(logits), logits

    def _never_alone(self, inputs: Tensor) -> Tensor:
        """Duplicate a single point: batch norm in training needs two; the output is the same."""
        alone = self.model.training and len(inputs) == 1
        return torch.cat([inputs, inputs]) if alone else inputs

    def twin(self, model: nn.Module) -> Network:
        """A network for another model with the same device and precision."""
        return Network(model, self._device, self._precision)

    def wide(self) -> Network:
        """The same network without bfloat16, for differences too small for it."""
        wide = "float64" if self._precision == "float64" else "float32"
        return Network(self.model, self._device, wide)


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Context in which batch norm uses the batch's statistics without updating running ones."""
    layers = tracking_layers(model)
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def tracking_layers(model: nn.Module) -> list[_BatchNorm]:
    """Layers of batch norm that have running statistics."""
    layers = (module for module in model.modules() if isinstance(module, _BatchNorm))
    return [layer for layer in layers if layer.track_running_stats]


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the model has batch norm: in training an output then depends on the whole batch."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())
