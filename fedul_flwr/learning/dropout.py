"""Dropout between the layers of any model, for methods whose authors train with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from fedul_flwr.errors import UserError
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.network import Network

_STAGES = ("layer1", "layer2", "layer3", "layer4", "avgpool")
"""Parts of torchvision's ResNets. Dropout on their inputs is dropout after the first layer and
after each of the four stages."""


def with_dropout(objective: Objective, probability: float) -> Objective:
    """``objective`` of the network with :func:`layer_dropout`; itself where that is 0."""
    if probability == 0:
        return objective

    def dropped(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
        with layer_dropout(network.model, probability):
            return objective(network, inputs, targets)

    return dropped


@contextmanager
def layer_dropout(model: nn.Module, probability: float) -> Iterator[None]:
    """Within, ``model`` in training drops out the output of every layer but the last.

    A layer is a convolution or a linear layer with what follows it (batch norm, activation,
    pooling): dropout acts on the input of the next one. A ResNet of torchvision has dropout between
    its stages and not inside them. Both are the places of the FedUL authors' code.

    Parameters
    ----------
    model : any model; in evaluation mode nothing is dropped.
    probability : of an entry to be set to 0, in (0, 1); the others are divided by 1 − probability.

    Raises
    ------
    UserError
        The model has no two layers to drop out between.
    """
    stages = _stages(model)
    layers = stages or [m for m in model.modules() if isinstance(m, (_ConvNd, nn.Linear))]
    if len(layers) < 2:
        raise UserError(
            "Setting fedllp.dropout: the model has no two convolutions or linear layers, so there "
            "is nothing to drop out between them."
        )
    passed = 0  # layers since the model was called

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
    """The stages of a ResNet; none of another model."""
    for module in model.modules():
        children = dict(module.named_children())
        if all(name in children for name in _STAGES):
            return [children[name] for name in _STAGES]
    return []
