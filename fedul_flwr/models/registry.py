"""Build models by name or reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from fedul_flwr.config.base import load_reference, nearest, shown, user_code
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import ModelOptions, split_extension
from fedul_flwr.data.cores import exclusive
from fedul_flwr.data.seeds import draws_of
from fedul_flwr.data.types import InputShape, network_shape
from fedul_flwr.errors import UserError
from fedul_flwr.models import cnns, resnets
from fedul_flwr.models.mlp import linear, mlp, mlp_linear
from fedul_flwr.models.parts import EXTENSIONS, random_features
from fedul_flwr.models.resnets import PREFIX, TorchvisionModel
from fedul_flwr.models.whitened_filters import whitened_filters

Builder = Callable[[InputShape, int], nn.Module]

MODELS: dict[str, Builder] = {
    "alexnet-like": cnns.alexnet_like,
    "cnn2": cnns.cnn2,
    "cnn4": cnns.cnn4,
    "cnn6": cnns.cnn6,
    "cnn6-quarter": cnns.cnn6_quarter,
    "cnn13": cnns.cnn13,
    "cnn13-plain": cnns.cnn13_plain,
    "cnn13-quarter": cnns.cnn13_quarter,
    "cnn-small": cnns.cnn_small,
    "lenet": cnns.lenet,
    "linear": linear,
    "mlp": mlp,
    "mlp-linear": mlp_linear,
    "random-features": random_features,
    "resnet9": resnets.resnet9,
    "resnet9-quarter": resnets.resnet9_quarter,
    "resnet18": resnets.resnet18,
    "resnet18-fedul": resnets.resnet18_fedul,
    "resnet18-small": resnets.resnet18_small,
    "whitened-filters": whitened_filters,
    "wrn28-2": resnets.wrn28_2,
}
"""Built-in architectures; each maps ``(n, channels, height, width)`` to ``(n, K)`` logits."""
FOR_VECTORS = ("linear", "mlp", "mlp-linear")
"""Those that also map vectors ``(n, d)``."""


def build_model(
    name: str,
    input_shape: InputShape,
    num_classes: int,
    seed: int = 0,
    options: ModelOptions | None = None,
) -> nn.Module:
    """Build model ``name`` with weights drawn from ``seed``.

    Parameters
    ----------
    name : a key of :data:`MODELS`, ``torchvision:NAME``, or ``package.module:function`` of a
        function that takes ``(input_shape, num_classes)`` and returns a module; ``+head`` or
        ``+projections`` behind it adds layers (:data:`~fedul_flwr.models.parts.EXTENSIONS`).

    Examples
    --------
    >>> model = build_model("mlp", input_shape=(4,), num_classes=3)
    >>> tuple(model(torch.zeros(2, 4)).shape)
    (2, 3)
    """
    plain, extension = split_extension(name)
    builder = _find(plain)
    if len(input_shape) == 1 and not _is_own(plain) and plain not in FOR_VECTORS:
        others = " or ".join(f"model = {other!r}" for other in FOR_VECTORS)
        raise UserError(
            f"Setting model = {name!r} takes images, and the data are vectors of "
            f"{input_shape[0]} numbers: choose {others}.",
            "model-unfit",
            setting="model",
        )
    if plain == "mlp":
        builder = partial(mlp, options=options)
    # Models draw weights from global generators; the caller's stay as they are.
    with exclusive(), draws_of(seed, "model"):
        torch.manual_seed(seed)
        if _is_own(plain):
            model = _try_reference(plain, builder, input_shape, num_classes)
        else:
            model = builder(input_shape, num_classes)
        return EXTENSIONS[extension](model, num_classes) if extension else model


def fresh_model(settings: RunConfig, input_shape: InputShape, num_classes: int) -> nn.Module:
    """A run's model with random weights from the seed, times `init-scale`, in its precision."""
    model = build_model(
        settings.model, input_shape, num_classes, settings.seed, settings.model_options
    )
    if settings.init_scale != 1:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(settings.init_scale)
    return model.double() if settings.precision == "float64" else model


def _is_own(name: str) -> bool:
    return ":" in name and not name.startswith(PREFIX)


def _try_reference(
    name: str, builder: Builder, input_shape: InputShape, num_classes: int
) -> nn.Module:
    """A user's own model, whose outputs for some points follow from these and its weights alone."""
    what = f"Setting model = {name!r}"
    points = torch.rand(3, *network_shape(input_shape), generator=torch.Generator().manual_seed(0))
    with user_code(what):
        model, other = builder(input_shape, num_classes), builder(input_shape, num_classes)
        if not isinstance(model, nn.Module):
            raise UserError(f"{what} returned no torch.nn.Module.", "own-code-result")
        if not any(True for _ in model.parameters()):
            raise UserError(f"{what} returned a module without weights.", "own-code-result")
        training = model.training
        with torch.no_grad():
            logits = model.eval()(points)
    if not isinstance(logits, torch.Tensor) or logits.shape != (len(points), num_classes):
        form = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise UserError(
            f"{what} returned {form} for {len(points)} points of {num_classes} classes; logits of "
            f"shape ({len(points)}, {num_classes}) are needed.",
            "own-code-result",
        )
    with user_code(what):
        if reason := _beside_weights(model, other, points, logits):
            raise UserError(
                f"{what}: its outputs do not follow from its weights. {reason}", "own-code-result"
            )
    return model.train(training)


def _beside_weights(model: nn.Module, other: nn.Module, points: Tensor, logits: Tensor) -> str:
    """Why outputs depend on more than a point and the weights, with the remedy; else empty."""

    def differs(answers: Callable[[], Tensor]) -> bool:
        with torch.no_grad():
            try:
                logits_again = answers()
            except (RuntimeError, ValueError):  # batch statistics of a single point
                return True
        return not torch.allclose(logits_again, logits, rtol=1e-3, atol=1e-4, equal_nan=True)

    if differs(lambda: model(points)):
        return (
            "Two evaluations of one point differ: give functions such as dropout "
            "training=self.training."
        )
    if differs(lambda: torch.cat([model(point[None]) for point in points])):
        return (
            "Those of a point depend on the points beside it: normalize by statistics that the "
            "model keeps (track_running_stats=True), or by each point's own."
        )
    other.load_state_dict(model.state_dict())
    if differs(lambda: other.eval()(points)):
        return (
            "Two models with the same weights differ: keep what is drawn in the constructor by "
            "register_buffer."
        )
    return ""


def _find(name: str) -> Builder:
    if name in MODELS:
        return MODELS[name]
    if name.startswith(PREFIX):
        return partial(TorchvisionModel, name.removeprefix(PREFIX))
    if ":" in name:
        builder: Builder = load_reference(name, "model")
        if not callable(builder):
            raise UserError(
                f"Setting model = {name!r} does not refer to a function.",
                "reference-wrong",
                setting="model",
            )
        return builder
    hint = nearest(name, MODELS)
    raise UserError(
        f"Setting model = {shown(name)}: must be one of {', '.join(MODELS)}, 'torchvision:NAME' "
        f"or 'package.module:function'{hint or '.'}",
        "unknown-name",
        setting="model",
    )
