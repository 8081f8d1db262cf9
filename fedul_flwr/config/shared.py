"""The settings that all methods share: of the data, the model and its training, and the run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from fedul_flwr.config.base import (
    AUTO,
    OR_AUTO,
    ColumnName,
    OnlyWith,
    Settings,
    nearest,
    only_with,
    only_without,
    parse_prior,
)

LITE0, WORDS = "efficientnet-lite0", "wordllama"
TORCHVISION, HUB, RUN = "torchvision:", "huggingface:", "run:"
"""Beginnings of names that are not those of a user's own function."""

_SIDE = re.compile(r"(.+)@([1-9]\d{0,3})")


def split_side(name: str) -> tuple[str, int]:
    """``NAME@SIDE`` as name and side in pixels; 0 without a side."""
    match = _SIDE.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def is_reference(name: str) -> bool:
    """Whether ``name`` is that of a user's own function."""
    return ":" in name and not name.startswith((TORCHVISION, HUB, RUN))


def is_function(source: str) -> bool:
    """Whether ``source``, which may also be a path, is ``package.module:function``."""
    module, _, function = source.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), function])


def name_texts(source: str, features: str = "") -> list[str]:
    """Texts of ``start-from = "names"``, one with ``{}`` for all classes or one for each; none for
    another source. Where it gives no text, names are compared as ``features`` has learned them."""
    kind, _, texts = source.partition(":")
    if source == NAMES:
        return ["{}" if features == WORDS else "a photo of a {}."]
    return texts.split("|") if kind == NAMES and ("{}" in texts or "|" in texts) else []


def starts_from_names(source: str) -> bool:
    """Whether first weights are vectors of the classes' names, so that no label trained them."""
    return is_function(source) or bool(name_texts(source))


IMAGE_SHIFTS = ("brightness", "contrast", "blur", "noise", "moved")
VECTOR_SHIFTS = ("scale", "offset", "noise")
"""Kinds of `shift` that images and vectors have."""


class Shift(NamedTuple):
    """A parsed `shift`: kind, strength, and the share of clients whose points differ."""

    kind: str
    strength: float
    share: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Shift:
        """Of ``kind:strength`` or ``kind:strength:share``.

        Raises
        ------
        ValueError
            With the reason.

        Examples
        --------
        >>> Shift.parse("blur:1.5:0.3")
        Shift(kind='blur', strength=1.5, share=0.3)
        """
        kind, *rest = text.split(":")
        kinds = dict.fromkeys((*IMAGE_SHIFTS, *VECTOR_SHIFTS))
        try:
            strength, share = map(float, [*rest, "1"][:2])
        except ValueError:
            strength = share = 0.0
        if kind not in kinds or len(rest) not in (1, 2) or not 0 < strength <= MOST_SHIFT:
            raise ValueError(
                "must be kind:strength or kind:strength:share, as brightness:0.5, of a strength "
                f"above 0, {MOST_SHIFT} at most, and a kind among {', '.join(kinds)}"
            )
        if not 0 < share <= 1:
            raise ValueError("the share of clients must be above 0, and 1 at most")
        return cls(kind, strength, share)


MOST_SHIFT = 50
"""Largest strength: e^50 times a float32 of usual size is a float32."""


def _shift(text: str) -> str:
    if text:
        Shift.parse(text)
    return text


PartitionName = Literal[
    "iid",
    "dirichlet",
    "pathological",
    "shard",
    "natural",
    "majority",
    "majority-mild",
    "imbalanced",
]
BUILT_IN = ("digits", "breast-cancer", "wine")
"""Data sets that ship with scikit-learn."""
SIMULATED = only_without("client-data")
"""Rule for settings that make the data of a simulation's clients."""
NEW_SPLIT = only_without("labels.split")
"""Rule for settings that an earlier run's split replaces."""
UNPROTECTED = "setting-breaks-privacy"
"""Code of what differential privacy does not cover."""
TEST_PRIOR_WORDS = (AUTO, "uniform", "sets", "em")


def parse_window(text: str) -> tuple[float, float] | None:
    """Center and width of ``"40,400"``; None for an empty text."""
    if not text:
        return None
    try:
        center, width = map(float, text.split(","))
        if math.isfinite(center) and 1 < width < math.inf:
            return center, width
    except ValueError:
        pass
    raise ValueError("must be center and width of a window, above 1, such as 40,400")


class DataSettings(Settings):
    """Settings of the data: where they come from, how they are split, what they become."""

    method: str = "fedul"
    """Name of a built-in method, or `package.module:NAME` of your own."""
    method_options: str = ""
    """Settings of your own method as `key=value …`, or as keys of a table with its name; built-in
    methods have a table each."""

    stage: str = ""
    """A feature of your own beside the method, a subclass of `Stage` as `package.module:NAME`
    (docs/own-method.md)."""

    callback: str = ""
    """Code of your own that looks at each round, a subclass of `Callback` as `package.module:NAME`
    (docs/callbacks.md)."""

    dataset: str = "digits"
    """`digits`, `breast-cancer`, `wine`, a Hugging Face hub name, or the path of a folder with
    train and test data. If devices have their own data, it is the server's test data, or `none`."""
    class_names: Annotated[str, only_with("dataset", "none")] = ""
    """Names of the classes, separated by commas."""
    input_shape: Annotated[str, only_with("dataset", "none")] = ""
    """Height x width x channels of images, such as `28x28x1`, or length of vectors, such as
    `30`."""
    columns: Annotated[str, only_with("points", "vectors")] = ""
    """Columns file, or directory of a run with one: which columns of tables are features, which of
    them are categories, and what fills their missing values (docs/vectors.md). Empty takes all
    columns of `dataset`."""
    label_column: ColumnName = ""
    """Column of labels in tables; empty takes `label` or another usual name."""
    text_column: Annotated[ColumnName, only_with("points", "texts")] = ""
    """Column of texts in tables that `features`, `wordllama` or a function of your own, turns into
    vectors; other columns than this one and the labels are left out (docs/features.md)."""
    missing: Annotated[
        Literal["refuse", "mean", "median", "most-frequent"], only_with("points", "vectors")
    ] = "refuse"
    """Missing values in tables whose columns have no `fill`: refuse them, or fill them by a
    column's mean, median or most frequent value in the training file of `dataset`, or without one
    among the owner's own points. Categories are filled by the most frequent one. What fills them is
    kept for predictions (docs/vectors.md)."""
    standardize: Annotated[
        Literal["auto", "none", "constants", "owner", "federation"],
        only_with("inputs", "vectors", idle=("none",)),
        only_without("features", of=("constants",), why="features have no columns"),
        only_without("dp.clipping", "server", "client", of=("federation",), code=UNPROTECTED),
        only_without("xclp.codes-epsilon", of=("federation",), code=UNPROTECTED),
    ] = "auto"
    """Standardize vectors by the means and scales in `columns` (`constants`), by those of the
    owner's own points (`owner`), or by those of all clients' points (`federation`), see
    docs/vectors.md. `auto` is `federation` for vectors and `none` for images and texts; with
    `server-only`, which asks no client, it is `owner`."""
    standardize_sum: Annotated[
        Literal["auto", "plaintext", "masked"], only_with("standardize", "auto", "federation")
    ] = "auto"
    """With means and scales of all clients: each client sends the mean and variance of its columns
    (`plaintext`), or masked sums, of which the server learns the total over all clients alone
    (`masked`, for three clients or more). `auto` is `masked` where `xclp.secure` or
    `secure-sum` is on or sums for heads are masked, else `plaintext`."""
    agreement: Literal["auto", "on", "off"] = "auto"
    """Before round 1 a masked sum of counts tells each owner, and nobody else, how its images or
    columns lie among all (docs/own-data.md). `auto` is `on` for owners' own data in runs that have
    secure sums and no noise, `off` else."""
    image_size: Annotated[int, Field(ge=0, le=1024), only_with("points", "images")] = 0
    """Resize images to squares of this side in pixels; 0 keeps their size."""
    image_bits: Annotated[
        Literal[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        only_with("points", "images"),
    ] = 0
    """Bits that the values of images use. In files of 16 bits: 12 for values up to 4095, as X-rays
    have them, of which the upper 8 are taken. In images of 8 bits: 4 for values up to 15, which are
    spread over 0 to 255; 8 and more leave those as they are. 0 takes the fewest of 8, 10, 12, 14
    and 16 that hold all values of 16-bit files in the training data of `dataset`, 1 for arrays of 0
    and 1, and refuses 8-bit images that are nearly black; owners and `fedul-flwr predict` use the
    same."""
    image_window: Annotated[str, only_with("points", "images")] = ""
    """Center and width, as `40,400`, of the values that DICOM images show from black to white, for
    all of them; empty takes the first window of each file (docs/own-data.md)."""
    features: str = ""
    """Replace points by features of a fixed function, computed once: `efficientnet-lite0`,
    `torchvision:NAME`, `huggingface:NAME` (pretrained networks, such as CLIP and DINOv2),
    `run:DIRECTORY` (the best model of a run, in simulations), perhaps with `@SIDE` to resize images
    to that many pixels; `wordllama`, for texts; or your own `package.module:function`. The model
    then takes vectors."""
    client_data: str = ""
    """Path of a folder with one sub-folder per simulated client, each in the form of a client's own
    data on a device; `dataset` is then the server's, or `none`."""
    partition: Annotated[PartitionName, SIMULATED, NEW_SPLIT] = "iid"
    """How a simulation splits the training data over the clients. With FedUL's `majority` each
    client has two classes of nearly all its points (tables D.5 and D.6), with `majority-mild` of
    0.15 to 0.25 of them each (the paper's main text). With FedMatch's `imbalanced` a
    client has half of its points in one class, 0.15 in the class before and after it each, and the
    rest in the others."""
    points_per_client: Annotated[int, Field(ge=0), SIMULATED, NEW_SPLIT] = 0
    """Keep only this many points per client (simulation); 0 keeps all. `majority`, `majority-mild`
    and `imbalanced` draw them in their class proportions, before any class runs out."""
    shift: Annotated[
        str,
        AfterValidator(_shift),
        SIMULATED,
        only_without("features", why="features are computed once for all clients"),
    ] = ""
    """Let points look different at each client of a simulation, as `brightness:0.5` does: kind,
    strength and, after another colon, the share of clients that differ. Each has a draw from the
    seed, within the strength. Images: `brightness` (a part of white), `contrast` (a factor up to
    e^strength), `blur` (pixels), `noise` (a part of white), `moved` (pixels). Vectors: `scale` (of
    each column a factor up to e^strength, as another unit is), `offset` and `noise` (parts of a
    column's deviation). Test data stay as they are, but where the error at a client is measured."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1), NEW_SPLIT] = 0.2
    """Fraction of the training data, with labels, that selects the best round at the server."""
    server_fraction: Annotated[float, Field(ge=0, lt=1), NEW_SPLIT] = 0.0
    """Fraction of the training data, with labels, that the server keeps for methods that train
    there. It is withheld from the clients under every method, so that comparisons share splits."""
    test_prior: Annotated[
        str,
        only_without("fedul.surrogate-loss", "release", idle=("uniform", "em")),
        only_without("dataset", "none", of=("em",)),
    ] = AUTO
    """Class priors at test time (pi): `uniform`, K numbers separated by commas, `sets` (mean of all
    clients' sets), or `em` (train for `uniform`, estimate pi from the server's test images).
    `auto` is `sets` where owners bring their own sets, except with `dp.clipping`; else `uniform`.
    """

    @field_validator("features")
    @classmethod
    def _check_features(cls, value: str) -> str:
        plain, _ = split_side(value)
        if plain and value != WORDS and plain != LITE0 and ":" not in plain:
            forms = f"{LITE0}, torchvision:NAME, huggingface:NAME, run:DIRECTORY, {WORDS}"
            hint = nearest(plain, [LITE0, WORDS])
            raise ValueError(f"must be one of {forms} or 'package.module:function'{hint}")
        return value

    @field_validator("image_window")
    @classmethod
    def _check_window(cls, value: str) -> str:
        parse_window(value)
        return value

    @field_validator("input_shape")
    @classmethod
    def _check_shape(cls, value: str) -> str:
        if value and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*x[13])?", value):
            raise ValueError(
                "must be height x width x channels of images, such as 28x28x1 (channels 1 or 3), "
                "or the length of vectors, such as 30"
            )
        return value

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.text_column and self.features != WORDS and not is_reference(self.features):
            raise ValueError(
                f"text-column = {self.text_column!r} needs features = {WORDS!r} or "
                "'package.module:function', which turn texts into vectors"
            )
        if self.features == WORDS and not self.text_column:
            raise ValueError(f"features = {WORDS!r} needs text-column, the column of the texts")
        if self.validation_fraction + self.server_fraction >= 1:
            raise ValueError(
                f"validation-fraction = {self.validation_fraction} and server-fraction = "
                f"{self.server_fraction} must leave training data: their sum must be below 1"
            )
        return self

    def class_priors(self) -> list[float] | None:
        """`test-prior` as K numbers; ``None`` if it is a word (training then assumes uniform
        priors, except with `sets`)."""
        return None if self.test_prior in TEST_PRIOR_WORDS else parse_prior(self.test_prior)

    @property
    def test_prior_source(self) -> str:
        """Source of pi: the word in `test-prior`, or `given` for numbers."""
        return self.test_prior if self.test_prior in TEST_PRIOR_WORDS else "given"

    @field_validator("test_prior")
    @classmethod
    def _check_prior(cls, value: str) -> str:
        if value not in TEST_PRIOR_WORDS:
            parse_prior(value, TEST_PRIOR_WORDS)
        return value


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
    *("cnn13-quarter", "cnn-small", "lenet", "linear", "mlp", "mlp-linear"),
    *("random-features", "resnet9"),
    *("resnet9-quarter", "resnet18", "resnet18-fedul", "resnet18-small", "whitened-filters"),
    "wrn28-2",
)
"""Names of the built-in models, without loading PyTorch."""
FITTED_MODEL = "whitened-filters"
"""The one whose filters follow from a sum over clients."""
PRETRAINED_MODELS = ("resnet18-fedul",)
"""Built-in models for which torchvision has weights, beside ``torchvision:NAME``."""


OPTIMIZERS = ("adam", "sgd")
VIEWS = {
    "images": ("rotate", "flip", "translate-flip", "rotate-flip", "affine"),
    "vectors": ("noise", "dropout", "mixup"),
}
"""Values of `augment` for one kind of points."""
OTHER_KIND = "setting-unfit-for-data"
"""Code of a setting that is for other points."""
AUGMENTATIONS = ("auto", "none", *VIEWS["images"], *VIEWS["vectors"])
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
NAMES = "names"
"""Value of `start-from`, or its beginning, for the names of the classes."""
MODEL_EXTENSIONS = ("head", "projections")
"""What ``+NAME`` behind the name of a model adds to it."""


def split_extension(model: str) -> tuple[str, str]:
    """The name of a model, and what is added to it; empty for nothing."""
    plain, _, extension = model.rpartition("+")
    return (plain, extension) if extension in MODEL_EXTENSIONS and plain else (model, "")


OF_MLP = only_with("model", AUTO, "mlp", *(f"mlp+{added}" for added in MODEL_EXTENSIONS))
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
    `package.module:function` of your own; `+head` behind it adds a second linear layer, and
    `+projections` those of `proxyfl`. `auto` here and below follows from the size of the data
    (docs/defaults.md)."""
    model_width: Annotated[int, Field(ge=1, le=65536), OF_MLP] = ModelOptions().width
    """Units of each hidden layer of `mlp`."""
    model_layers: Annotated[int, Field(ge=1, le=64), OF_MLP] = ModelOptions().layers
    """Number of hidden layers of `mlp`."""
    model_dropout: Annotated[float, Field(ge=0, lt=1), OF_MLP] = ModelOptions().dropout
    """Probability of dropout after every hidden layer of `mlp`, in training."""
    start_from: Annotated[str, only_without("xclp-predict.features", "pixels")] = ""
    """Source of the initial weights: output directory of a run, `.safetensors` file, or
    `torchvision` (pretrained, for its own models and `resnet18-fedul`). A last layer for another
    number of classes keeps its random weights. For `model = "linear"` also the vectors of the
    classes' names: `names`, by `features`, which takes texts or has an encoder of texts beside
    that of images, or a function of your own, `package.module:function`. `names:TEXT` has `{}`
    where the name goes, or a text for each class with `|` between them (docs/features.md)."""
    frozen_rounds: Annotated[
        int, Field(ge=0), only_with("start-from"), only_without("base", "scaffold")
    ] = 0
    """First rounds in which only the last linear layer is trained; batch norm keeps its statistics
    in them. Afterwards all layers are trained."""
    init_scale: Annotated[float, Field(gt=0), only_without("start-from")] = 1.0
    """Factor of all randomly initialized parameters before round 1, including biases and the gains
    of batch norm."""
    num_rounds: Annotated[int, Field(ge=1)] = 30
    """Communication rounds (R); `num-server-rounds`, the name in Flower's own apps, is the same."""
    local_epochs: Annotated[int, Field(ge=1), *OR_AUTO, only_without("local-steps", idle=(1,))] = (
        AUTO
    )
    """Local epochs per round (E)."""
    local_steps: Annotated[int, Field(ge=0)] = 0
    """Local steps per round in place of `local-epochs`, so that clients, and methods whose epochs
    are of unequal lengths, train equally long; 0 for epochs. Epochs are repeated, and the last one
    ends where the steps do."""
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
    """Rounds (with `client-plateau`, the client's) without a lower validation loss after which step
    sizes are divided; the count then restarts from 0."""
    momentum: Annotated[float, Field(ge=0, lt=1), only_with("optimizer", "sgd")] = 0.0
    """Momentum of local SGD."""
    weight_decay: Annotated[float, Field(ge=0), only_with("optimizer", *OPTIMIZERS)] = 0.0
    """L2 penalty of the local optimizer."""
    l1: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the L1 penalty on all parameters."""
    augment: Annotated[
        str,
        *_name_or_reference(*AUGMENTATIONS),
        *(only_with("inputs", kind, of=VIEWS[kind], code=OTHER_KIND) for kind in VIEWS),
        only_with("mixup", of=("mixup",)),
    ] = "auto"
    """Augmentation of local batches, and in `closed-form` of one view beside each point: `rotate`
    by up to 20 degrees, `flip` left-right, `translate-flip` (by up to 4 pixels, mirrored border),
    `rotate-flip` (by up to 10 degrees), `affine` (rotated by up to 15 degrees, scaled by 0.9 to
    1.1, shifted by up to 2 pixels). For vectors: `noise`, `dropout` or `mixup`, as the next three
    settings say. Or a function of your own, `package.module:function` (docs/own-method.md)."""
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
    def _check_training(self) -> Self:
        plain, _ = split_extension(self.model)
        of_torchvision = self.model.startswith(f"{PRETRAINED}:") or plain in PRETRAINED_MODELS
        if self.start_from == PRETRAINED and not of_torchvision:
            others = " or ".join(map(repr, PRETRAINED_MODELS))
            raise ValueError(
                f"start-from = 'torchvision' is for models of torchvision, and model = "
                f"{self.model!r} is none: choose 'torchvision:NAME' or {others}"
            )
        needed = ""
        if starts_from_names(self.start_from) and self.model != "linear":
            needed = "model = 'linear'"
        elif name_texts(self.start_from) and not self.features.startswith((HUB, WORDS)):
            needed = f"features = 'huggingface:NAME', an encoder of images and texts, or {WORDS!r}"
        if needed:
            raise ValueError(
                f"start-from = {self.start_from!r} makes a linear layer of the classes' names: it "
                f"needs {needed}"
            )
        return self


BaseName = Literal[
    "fedavg",
    "fedprox",
    "fedadam",
    "fedavgm",
    "fedyogi",
    "fedadagrad",
    "fedmedian",
    "fedtrimmedavg",
    "krum",
    "multikrum",
    "bulyan",
    "scaffold",
    "fednova",
    "local",
]
UNWEIGHTED = ("fedmedian", "fedtrimmedavg", "krum", "bulyan")
"""Bases that weigh all clients' models equally; `client-weights` has no effect on them."""
SUMMED = (
    *("fedavg", "fedprox", "fedadam", "fedavgm", "fedyogi", "fedadagrad", "scaffold", "fednova"),
)
"""Bases that need no more than a weighted sum of the clients' models."""
MORE_THAN_MODELS = ("scaffold", "fednova")
"""Bases whose clients return more than a model, which `max-update-norm` cannot bound: changes of
variates, which have other units, and numbers of steps by which updates are scaled."""


OF_TRAINING = frozenset(
    {
        "model-dropout",
        "frozen-rounds",
        "callback",
        "num-rounds",
        "local-epochs",
        "local-steps",
        "optimizer",
    }
    | {"learning-rate", "learning-rate-schedule", "learning-rate-rounds", "learning-rate-patience"}
    | {"momentum", "weight-decay", "l1", "mixup", "base"}
)
"""Settings that have no effect with a method that trains nothing."""
OF_VIEWS = frozenset({"augment", "noise", "feature-dropout"})
"""Settings that have none either where clients make no sums of their points."""


class SharedSettings(TrainingSettings):
    """Settings of a run that do not belong to one method."""

    base: Annotated[
        BaseName,
        only_with("optimizer", "sgd", of=("fednova",), why="it counts the steps of SGD"),
        only_with("evaluate", "local", of=("local",), why="it has no combined model"),
        only_without("test-prior", "em", of=("local",)),
    ] = "fedavg"
    """Federated optimizer that the method wraps; with `local` clients share nothing and each
    continues from its own model."""
    fraction_train: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the clients sampled in every round."""
    fraction_evaluate: Annotated[
        float, Field(gt=0, le=1), only_with("selection", "auto", "heldout")
    ] = 1.0
    """Fraction of the clients that get the model and report its loss on held-out data, the same
    ones in every round."""
    client_weights: Annotated[Literal["uniform", "examples"], only_without("base", *UNWEIGHTED)] = (
        "uniform"
    )
    """Weights of the mean over clients: equal (1/C), or by number of points n_c."""
    selection: Annotated[
        Literal["auto", "validation", "balanced", "heldout", "shares", "last"],
        only_with("evaluate", "global", of=("heldout", "shares")),
    ] = "auto"
    """Criterion of the best round: validation error, the same with all classes weighing equally
    (`balanced`), loss on held-out unlabeled data, error known from class `shares`
    (docs/known-error.md), or the last round; `auto` takes validation if the server has labels, else
    shares where no point has to be held out for it, else held-out data."""
    evaluate: Literal["global", "local"] = "global"
    """Which errors are measured: those of the combined model, or (`local`) the mean over the models
    that the clients of the round return."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Evaluate at the server every so many rounds; the last round is always evaluated."""
    stop_after: Annotated[
        int,
        Field(ge=0),
        only_without("selection", "last"),
        only_without("head", "closed-form"),
        only_without("method", "xclp-predict"),
    ] = 0
    """End the run after so many rounds without a better value of `selection`; 0 makes all
    `num-rounds`."""
    stop_least: Annotated[int, Field(ge=0), only_without("stop-after", 0)] = 0
    """Fewest rounds before `stop-after` ends the run."""
    measure_test_error: Annotated[
        bool, only_without("dataset", "none"), only_without("method", "xclp-predict")
    ] = True
    """Measure errors and all else (docs/measures.md) on the server's test set. With `false` its
    labels are not read; searches for settings use this (docs/tune.md)."""
    measure_forgetting: Annotated[bool, only_without("standardize", "owner", of=(True,))] = False
    """Also measure the error on the labeled training points at every evaluation (simulations on
    partly labeled data, and methods that train at the server)."""
    calibration: Annotated[
        Literal["auto", "none", "validation", "shares"],
        only_without("dataset", "none", of=("validation",)),
        only_without("method", "xclp-predict"),
        only_with("evaluate", "global", of=("validation", "shares")),
    ] = "auto"
    """At the end of the run, one number by which the saved model's logits are divided in
    predictions: fitted on the server's `validation` labels, or such that the model is as sure on
    average as it is right by the error known from class `shares` (docs/measures.md); `auto` takes
    `shares` where that is known, else `none`."""
    personal: Annotated[
        Literal["off", "head", "norm"],
        only_without("method", "xclp-predict", "server-only"),
        only_with("evaluate", "global"),
    ] = "off"
    """After the last round each client makes a personal model from the chosen one, and compares
    both (docs/personal.md): with a last linear layer of its own (`head`), or with its own
    statistics of batch norm (`norm`). One label in five is then set aside at each client."""
    on_client_failure: Literal["stop", "continue"] = "stop"
    """If a client fails or is not connected: `stop` ends the run, `continue` leaves the client out
    until it comes back."""
    connect_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that clients have to connect before the first round. If fewer connect than node
    configs announce, `stop` ends the run, and `continue` starts with these; others join later. The
    same limit holds for a node's answer about its identity, for the setup of a client that joins
    or comes back later, and for owners who approve each run."""
    round_timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds a round, or the phase before the first one, waits for replies."""
    max_update_norm: Annotated[
        float, Field(ge=0), only_without("base", *MORE_THAN_MODELS, "local")
    ] = 0.0
    """Largest L2 norm of an update, the client's model (or FedMatch's parts) minus the global one,
    over all floating-point values (batch-norm statistics too). A larger update is refused, and its
    client counts as failed; 0 sets no bound."""

    secure_sum: Annotated[
        Literal["off", "on"],
        only_with("base", *SUMMED),
        only_with("evaluate", "global"),
        only_without("learning-rate-schedule", "client-plateau", of=("on",)),
    ] = "off"
    """With `on` the server reads the sum of a round's updates, weights and metrics, and none of a
    single client (docs/privacy.md). Updates travel in fixed point; `max-update-norm` clips them at
    the client. At least three clients must take part in every round."""
    head: Annotated[
        Literal["trained", "closed-form"],
        only_with("evaluate", "global"),
        only_without("method", "xclp-predict"),
        only_without("num-rounds", 1, of=("closed-form",), why="the last round trains nothing"),
    ] = "trained"
    """With `closed-form` the last round trains nothing: it replaces the model's last linear layer
    by one that follows from sums over all clients. It does not drift apart where clients lack
    classes. The best round is chosen as always (docs/closed-form.md)."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of all random numbers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run."""
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Number format in training; `auto` takes bfloat16 for models of 150,000 weights or more if the
    processor multiplies it faster. Each process decides for itself: choose one explicitly if
    results must be bit-identical across machines (different CPUs, a run resumed elsewhere)."""
    client_threads: Annotated[int, Field(ge=0, le=4096)] = 1
    """CPU threads of one client. 0 takes all; with `--engine processes` the clients that compute at
    the same time share the cores. Results can differ between thread counts."""
    lanes: Annotated[int, Field(ge=0, le=256), *OR_AUTO] = 0
    """With `--engine in-process`, clients that train at the same time in one process, with steps
    that a GPU repeats as recorded; 0 trains one after the other. `auto` takes as many as there is
    memory for on GPUs, up to 16 on each, and none on a CPU. With `--engine processes` any number
    means a lane in each process. Results do not depend on it. Not yet measured on a GPU, and so off
    by default (docs/performance.md)."""
    output: str = ""
    """Directory of results; empty takes `runs/<method>-<dataset>-<time>`."""
    resume: str = ""
    """Directory of an interrupted run to continue."""
    tracking: Literal[
        "none",
        "tensorboard",
        "mlflow",
        "wandb",
        "tensorboard,mlflow",
        "tensorboard,wandb",
        "mlflow,wandb",
        "tensorboard,mlflow,wandb",
    ] = "none"
    """Tracking tools that also get the metrics of a run: see docs/tracking.md."""
    figures: Literal["summary", "all"] = "summary"
    """Pictures that a run draws at its end: one `summary`, or `all`. `fedul-flwr report` and
    `result.plot()` draw them of any run at any time."""

    @model_validator(mode="after")
    def _check_run(self) -> Self:
        described = any([self.input_shape, self.columns, self.text_column])
        if self.dataset == "none" and not (self.class_names and described):
            raise ValueError(
                "dataset = 'none' needs class-names and input-shape, columns or text-column"
            )
        return self

    @property
    def window(self) -> tuple[float, float] | None:
        """Center and width of what DICOM images show; None for those of each file."""
        return parse_window(self.image_window)

    @property
    def sends_class_masses(self) -> bool:
        """Whether each client tells the server how many points of each class it expects."""
        return self.test_prior == "sets" and self.secure_sum == "off"

    def is_evaluated(self, round_number: int) -> bool:
        """Whether round ``round_number``, counted from 1, ends with an evaluation."""
        last = self.num_rounds
        compared = self.head == "closed-form" and round_number == last - 1  # with the head of last
        return round_number % self.evaluate_every == 0 or round_number == last or compared
