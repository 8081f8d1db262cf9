"""The last linear layer of a model, whose inputs are features, and a second one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.errors import UserError


def feature_layer(model: nn.Module) -> nn.Linear:
    """The last linear layer of ``model``, by the order in which its modules were added."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UserError(
            "The model has no linear layer, and features are the inputs of the last one: "
            "choose another model.",
            "model-unfit",
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
    weights = {
        weight for head in heads if isinstance(head, nn.Module) for weight in head.parameters()
    }
    body = [
        weight for weight in model.parameters() if weight.requires_grad and weight not in weights
    ]
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


SUFFIX = "+head"


class TwoHeads(nn.Module):
    """``model`` with a second head, linear in the inputs of its last linear layer.

    It behaves like ``model``: ``forward`` returns the logits of the first head. The second head's
    arrays are ``second.weight`` and ``second.bias``; names of the others have the prefix
    ``model.``.

    Parameters
    ----------
    model : any model with a linear layer.
    num_classes : K.
    """

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        super().__init__()
        layer = feature_layer(model)
        # Before the model, so that the last linear layer of both is the model's.
        self.second = nn.Linear(layer.in_features, num_classes)
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of the first head."""
        logits: Tensor = self.model(inputs)
        return logits

    def both(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(n, K)`` of the first and of the second head, in one pass."""
        with inputs_of(feature_layer(self.model)) as features:
            logits = self(inputs)
        return logits, self.second(features[-1])
