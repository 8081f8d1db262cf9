"""Name or reference -> model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fedul_flwr.config.references import load_reference
from fedul_flwr.errors import UserError
from fedul_flwr.models.alexnet_like import alexnet_like
from fedul_flwr.models.cnn4 import cnn4
from fedul_flwr.models.cnn6 import cnn6, cnn6_quarter
from fedul_flwr.models.cnn13 import cnn13, cnn13_plain, cnn13_quarter
from fedul_flwr.models.cnn_small import cnn_small
from fedul_flwr.models.lenet import lenet
from fedul_flwr.models.mlp import mlp
from fedul_flwr.models.mlp_linear import mlp_linear
from fedul_flwr.models.resnet9 import resnet9, resnet9_quarter
from fedul_flwr.models.resnet18 import resnet18, resnet18_small
from fedul_flwr.models.torchvision_model import PREFIX, TorchvisionModel
from fedul_flwr.models.two_heads import SUFFIX, TwoHeads

ImageShape = tuple[int, int, int]
Builder = Callable[[ImageShape, int], nn.Module]

MODELS: dict[str, Builder] = {
    "alexnet-like": alexnet_like,
    "cnn4": cnn4,
    "cnn6": cnn6,
    "cnn6-quarter": cnn6_quarter,
    "cnn13": cnn13,
    "cnn13-plain": cnn13_plain,
    "cnn13-quarter": cnn13_quarter,
    "cnn-small": cnn_small,
    "lenet": lenet,
    "mlp": mlp,
    "mlp-linear": mlp_linear,
    "resnet9": resnet9,
    "resnet9-quarter": resnet9_quarter,
    "resnet18": resnet18,
    "resnet18-small": resnet18_small,
}
"""Built-in architectures; each maps ``(n, channels, height, width)`` to ``(n, K)`` logits."""


def build_model(name: str, image_shape: ImageShape, num_classes: int, seed: int = 0) -> nn.Module:
    """Build model ``name`` with weights drawn from ``seed``.

    Parameters
    ----------
    name : a key of :data:`MODELS`, ``torchvision:NAME``, or ``package.module:function`` of a
        function that takes ``(image_shape, num_classes)`` and returns a module; with ``+head``
        behind it the model gets a second head (:class:`~fedul_flwr.models.two_heads.TwoHeads`).
    image_shape : ``(height, width, channels)``.
    num_classes : K.

    Raises
    ------
    UserError
        Unknown name, a reference that cannot be used, or images too small for the architecture.
    """
    plain = name.removesuffix(SUFFIX)
    builder = _find(plain)
    # Models draw their weights from torch's global generator: fork it, leave the caller's alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = builder(image_shape, num_classes)
        if not isinstance(model, nn.Module):
            raise UserError(f"Setting model = {name!r} returned no torch.nn.Module.")
        return model if plain == name else TwoHeads(model, num_classes)


def _find(name: str) -> Builder:
    if name in MODELS:
        return MODELS[name]
    if name.startswith(PREFIX):
        return partial(TorchvisionModel, name.removeprefix(PREFIX))
    if ":" in name:
        builder: Builder = load_reference(name, "model")
        if not callable(builder):
            raise UserError(f"Setting model = {name!r} does not refer to a function.")
        return builder
    raise UserError(
        f"Setting model = {name!r}: must be one of {', '.join(MODELS)}, 'torchvision:NAME' "
        "or 'package.module:function'."
    )
