"""Dropout between the layers of any model, for methods whose authors use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from fedul_flwr.errors import UserError
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.task import Batch, BatchLoss

_STAGES = ("layer1", "layer2", "layer3", "layer4", "avgpool")
"""Parts of torchvision's ResNets. Dropout on their inputs is dropout after the first layer and
after each of the four stages."""


def with_dropout(loss: BatchLoss, probability: float) -> BatchLoss:
    """``loss`` with :func:`layer_dropout` in the network; unchanged for probability 0."""
    if probability == 0:
        return loss

    def dropped(network: Network, batch: Batch) -> Tensor:
        with layer_dropout(network.model, probability):
            return loss(network, batch)

    return dropped


@contextmanager
def layer_dropout(model: nn.Module, probability: float) -> Iterator[None]:
    """Context in which ``model``, in training, has dropout after every layer but the last.

    A layer is a convolution or a linear layer with what follows it (batch norm, activation,
    pooling): dropout acts on the input of the next one. In a ResNet of torchvision dropout acts
    between stages, not inside them. Both positions are those of the FedUL authors' code.

    Parameters
    ----------
    model : any model; in evaluation mode nothing is dropped.
    probability : in (0, 1), of setting an entry to 0; the others are divided by 1 − probability.
    """
    stages = _stages(model)
    layers = stages or [m for m in model.modules() if isinstance(m, (_ConvNd, nn.Linear))]
    if len(layers) < 2:
        raise UserError(
            "Setting fedllp.dropout: the model has no two convolutions or linear layers, so there "
            "is nothing to drop out between them.",
            "model-unfit",
            setting="fedllp.dropout",
        )
    passed = 0  # number of layers since the model was called

    def begin(*_: object) -> None:
        nonlocal passed
        passed = 0

    def drop(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal passed
        passed += 1
        if passed == 1 and not stages:  # the first layer's input is the image
            return inputs
        return functional.dropout(inputs[0], probability, training=layer.training), *inputs[1:]

    hooks = [model.register_forward_pre_hook(begin)]
    hooks += [layer.register_forward_pre_hook(drop) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _stages(model: nn.Module) -> list[nn.Module]:
    """The stages of a ResNet; empty for another model."""
    for module in model.modules():
        children = dict(module.named_children())
        if all(name in children for name in _STAGES):
            return [children[name] for name in _STAGES]
    return []
