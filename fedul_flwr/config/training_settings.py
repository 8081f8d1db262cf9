"""Settings of the model and of local training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from fedul_flwr.config.base import AUTO, OR_AUTO, OnlyWith, nearest, only_with, only_without
from fedul_flwr.config.data_settings import DataSettings, is_function


class ModelOptions(NamedTuple):
    """Values of the settings `model-width`, `model-layers` and `model-dropout`."""

    width: int = 128
    layers: int = 2
    dropout: float = 0.0


def recorded_options(settings: Mapping[str, Any]) -> ModelOptions:
    """Options in flat settings, which may be older than the options."""
    options = {name: settings.get(f"model-{name}") for name in ModelOptions._fields}
    return ModelOptions(**{name: value for name, value in options.items() if value is not None})


MODEL_NAMES = (
    *("alexnet-like", "cnn2", "cnn4", "cnn6", "cnn6-quarter", "cnn13", "cnn13-plain"),
    *("cnn13-quarter", "cnn-small", "lenet", "linear", "mlp", "mlp-linear", "resnet9"),
    *("resnet9-quarter", "resnet18", "resnet18-fedul", "resnet18-small", "wrn28-2"),
)
"""Names of the built-in models, without loading PyTorch."""
PRETRAINED_MODELS = ("resnet18-fedul",)
"""Built-in models for which torchvision has weights, beside ``torchvision:NAME``."""


OPTIMIZERS = ("adam", "sgd")
AUGMENTATIONS = (
    "auto",
    "none",
    "rotate",
    "flip",
    "translate-flip",
    "rotate-flip",
    "affine",
    "noise",
    "dropout",
    "mixup",
)
"""Built-in optimizers and augmentations; a function of the user's own is named by reference."""


def _name_or_reference(*names: str) -> tuple[AfterValidator]:
    """Annotation of a text that is one of ``names``, or ``package.module:function``."""

    def check(value: str) -> str:
        if value not in names and ":" not in value:
            allowed = ", ".join(map(repr, names))
            raise ValueError(
                f"must be one of {allowed} or 'package.module:function'{nearest(value, names)}"
            )
        return value

    return (AfterValidator(check),)


PRETRAINED = "torchvision"
"""Value of `start-from` for torchvision's pretrained weights."""
OF_MLP = only_with("model", AUTO, "mlp", "mlp+head")
PLATEAUS = ("plateau", "client-plateau")
"""Schedules that follow the validation loss."""
PLATEAU = only_with("learning-rate-schedule", *PLATEAUS)


def _of_vectors(augment: str) -> tuple[OnlyWith, OnlyWith]:
    """Annotations of the strength of a view of vectors."""
    return only_with("inputs", "vectors"), only_with("augment", augment, or_strong_views=True)


class TrainingSettings(DataSettings):
    """Settings of the data, the model, and its local training."""

    model: str = AUTO
    """Name of a built-in model, `torchvision:NAME` for one of torchvision's, or
    `package.module:function` of your own; `+head` behind it adds a second linear layer. `auto`
    here and below follows from the size of the data (docs/defaults.md)."""
    model_width: Annotated[int, Field(ge=1, le=65536), OF_MLP] = ModelOptions().width
    """Units of each hidden layer of `mlp`."""
    model_layers: Annotated[int, Field(ge=1, le=64), OF_MLP] = ModelOptions().layers
    """Number of hidden layers of `mlp`."""
    model_dropout: Annotated[float, Field(ge=0, lt=1), OF_MLP] = ModelOptions().dropout
    """Probability of dropout after every hidden layer of `mlp`, in training."""
    start_from: Annotated[str, only_without("xclp-predict.features", "pixels")] = ""
    """Source of the initial weights: output directory of a run, `.safetensors` file, or
    `torchvision` (pretrained, for its own models and `resnet18-fedul`). A last layer for another
    number of classes keeps its random weights. For `model = "linear"` also a function of your own,
    `package.module:function`, that turns the names of the classes into its weights
    (docs/features.md)."""
    frozen_rounds: Annotated[int, Field(ge=0), only_with("start-from")] = 0
    """First rounds in which only the last linear layer is trained; batch norm keeps its statistics
    in them. Afterwards all layers are trained."""
    init_scale: Annotated[float, Field(gt=0), only_without("start-from")] = 1.0
    """Factor of all randomly initialized parameters before round 1, including biases and the gains
    of batch norm."""
    num_rounds: Annotated[int, Field(ge=1)] = 30
    """Communication rounds (R); `num-server-rounds`, the name in Flower's own apps, is the same."""
    local_epochs: Annotated[int, Field(ge=1), *OR_AUTO] = AUTO
    """Local epochs per round (E)."""
    batch_size: Annotated[int, Field(ge=0), *OR_AUTO] = AUTO
    """Local batch size (B); 0 takes all points of a client as one batch."""
    optimizer: Annotated[str, *_name_or_reference(*OPTIMIZERS)] = "adam"
    """Local optimizer, new in every round: `adam`, `sgd`, or a function of your own that builds
    one, `package.module:function` (docs/own-method.md)."""
    learning_rate: Annotated[float, Field(gt=0), *OR_AUTO] = AUTO
    """Local step size (learning rate)."""
    learning_rate_schedule: Literal["auto", "constant", "cosine", "plateau", "client-plateau"] = (
        "auto"
    )
    """How step sizes change over the rounds; `cosine` multiplies them in round t by
    (1 + cos(pi (t - 1)/T))/2 and keeps them constant from round T on; `plateau` divides them
    by 3 whenever the validation loss at the server has stopped falling. With `client-plateau` each
    client does so for its own step size, with the losses of the rounds in which it takes part
    (FedMatch's authors' code), and the server for its own training alone."""
    learning_rate_rounds: Annotated[
        int, Field(ge=0), only_with("learning-rate-schedule", "cosine")
    ] = 0
    """T, rounds until `cosine` would reach 0; 0 takes `num-rounds` or, for a method in stages, the
    length of the stage."""
    learning_rate_patience: Annotated[int, Field(ge=1), PLATEAU] = 5
    """Evaluations without a lower validation loss after which step sizes are divided; the
    count then restarts from 0."""
    momentum: Annotated[float, Field(ge=0, lt=1), only_with("optimizer", "sgd")] = 0.0
    """Momentum of local SGD."""
    weight_decay: Annotated[float, Field(ge=0), only_with("optimizer", *OPTIMIZERS)] = 0.0
    """L2 penalty of the local optimizer."""
    l1: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the L1 penalty on all parameters."""
    augment: Annotated[str, *_name_or_reference(*AUGMENTATIONS)] = "auto"
    """Augmentation of local batches: `rotate` by up to 20 degrees, `flip` left-right,
    `translate-flip` (by up to 4 pixels, mirrored border), `rotate-flip` (by up to 10 degrees),
    `affine` (rotated by up to 15 degrees, scaled by 0.9 to 1.1, shifted by up to 2 pixels). For
    vectors: `noise`, `dropout` or `mixup`, as the next three settings say. Or a function of your
    own, `package.module:function` (docs/own-method.md)."""
    noise: Annotated[float, Field(ge=0), *_of_vectors("noise")] = 0.2
    """Standard deviation of the Gaussian noise that `augment = "noise"` and strong views add to
    vectors; standardized columns have standard deviation 1."""
    feature_dropout: Annotated[float, Field(ge=0, lt=1), *_of_vectors("dropout")] = 0.2
    """Probability with which `augment = "dropout"` and strong views set a feature of a vector to 0,
    the mean of a standardized column."""
    mixup: Annotated[float, Field(ge=0, le=0.5), *_of_vectors("mixup")] = 0.0
    """Largest share of another point of the batch in a vector, with `augment = "mixup"` and in
    strong views; each vector's share is drawn evenly between 0 and this."""

    @property
    def model_options(self) -> ModelOptions:
        """Width, layers and dropout of the model."""
        return ModelOptions(self.model_width, self.model_layers, self.model_dropout)

    @model_validator(mode="after")
    def _check_mixup(self) -> Self:
        if self.augment == "mixup" and not self.mixup:
            raise ValueError("augment = 'mixup' needs a share of the other point: set mixup = 0.2")
        return self

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        plain = self.model.removesuffix("+head")
        of_torchvision = self.model.startswith(f"{PRETRAINED}:") or plain in PRETRAINED_MODELS
        if self.start_from == PRETRAINED and not of_torchvision:
            others = " or ".join(map(repr, PRETRAINED_MODELS))
            raise ValueError(
                f"start-from = 'torchvision' is for models of torchvision, and model = "
                f"{self.model!r} is none: choose 'torchvision:NAME' or {others}"
            )
        if is_function(self.start_from) and self.model != "linear":
            raise ValueError(
                f"start-from = {self.start_from!r} gives the weights of a linear layer: it needs "
                "model = 'linear'"
            )
        return self
