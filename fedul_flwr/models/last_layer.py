"""The last linear layer of a model: its inputs are features, and it can be trained alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.errors import UserError


def feature_layer(model: nn.Module) -> nn.Linear:
    """The last linear layer of ``model``, by the order in which its modules were added.

    Raises
    ------
    UserError
        If there is none.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UserError(
            "The model has no linear layer, and features are the inputs of the last one: "
            "choose another model."
        )
    return layers[-1]


@contextmanager
def inputs_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Context that collects the inputs of ``layer`` in a list, one per call."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def only_heads(model: nn.Module) -> Iterator[None]:
    """Context in which training changes the last linear layer only, and a second head if any.

    Batch norm uses its running statistics there, and leaves them as they are.
    """
    heads = [feature_layer(model), getattr(model, "second", None)]
    kept = {weight for head in heads if isinstance(head, nn.Module) for weight in head.parameters()}
    body = [weight for weight in model.parameters() if weight.requires_grad and weight not in kept]
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    training = [layer.training for layer in norms]
    for weight in body:
        weight.requires_grad_(False)
    for layer in norms:
        layer.eval()
    try:
        yield
    finally:
        for weight in body:
            weight.requires_grad_(True)
        for layer, was in zip(norms, training, strict=True):
            layer.train(was)
