"""The settings that all methods share."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedul_flwr.config.base import Settings
from fedul_flwr.config.class_priors import parse_prior
from fedul_flwr.config.features import check_features
from fedul_flwr.config.model import ModelOptions

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
PartitionName = Literal[
    "iid", "dirichlet", "pathological", "shard", "natural", "majority", "imbalanced"
]
UNWEIGHTED = ("fedmedian", "fedtrimmedavg", "krum", "bulyan")
"""Bases that weigh all clients' models equally; `client-weights` has no effect on them."""
UNMEASURED = {
    "scaffold": "adds up changes of variates, which have other units",
    "fednova": "scales updates by the normalisers that clients claim",
}
"""Bases whose clients return more than a model, with the reason why `max-update-norm` cannot bound
that."""
AugmentName = Literal[
    "none", "rotate", "flip", "translate-flip", "rotate-flip", "affine", "noise", "dropout"
]
BUILT_IN = ("digits", "breast-cancer", "wine")
"""Data sets that ship with scikit-learn."""
PRETRAINED = "torchvision"
"""Value of `start-from` for torchvision's pretrained weights."""
TEST_PRIOR_WORDS = ("uniform", "sets", "em")
OF_SCHEDULES = {
    "cosine": ("learning_rate_rounds",),
    "plateau": (
        "learning_rate_patience",
        "learning_rate_factor",
        "learning_rate_patience_scope",
    ),
}
"""Settings that have an effect only with one `learning-rate-schedule`."""


class SharedSettings(Settings):
    """Settings of a run that do not belong to one method."""

    method: str = "fedul"
    """Name of a built-in method, or `package.module:NAME` of your own."""
    method_options: str = ""
    """Settings of your own method as `key=value …`; built-in methods have a table each."""

    dataset: str = "digits"
    """`digits`, `breast-cancer`, `wine`, a Hugging Face hub name, or the path of a folder with
    train and test data. If devices have their own data, it is the server's test data, or `none`."""
    class_names: str = ""
    """Names of the classes, separated by commas; for `dataset = "none"`."""
    input_shape: str = ""
    """Height x width x channels of images, such as `28x28x1`, or length of vectors, such as `30`;
    for `dataset = "none"`."""
    columns: str = ""
    """Columns file, or directory of a run with one: which columns of tables are features, and their
    categories (docs/vectors.md). Empty takes all columns of `dataset`."""
    label_column: str = ""
    """Column of labels in tables; empty takes `label` or another usual name."""
    missing: Literal["refuse", "mean", "median", "most-frequent"] = "refuse"
    """Missing values in tables: refuse them, or fill them by a column's mean, median or most
    frequent value among the owner's own points, or the training points of `dataset`. Categories
    are filled by the most frequent one."""
    standardize: Literal["auto", "none", "constants", "owner", "federation"] = "auto"
    """Standardize vectors by the means and scales in `columns` (`constants`), by those of the
    owner's own points (`owner`), or by those of all clients' points (`federation`), for which each
    client sends the mean and variance of its columns (docs/vectors.md). `auto` is `federation` for
    vectors and `none` for images; with `server-only`, which asks no client, it is `owner`."""
    image_size: Annotated[int, Field(ge=0, le=1024)] = 0
    """Resize images to squares of this side in pixels; 0 keeps their size."""
    features: str = ""
    """Replace points by features of a fixed function, computed once: `efficientnet-lite0`,
    `torchvision:NAME`, `huggingface:NAME` (pretrained networks), `run:DIRECTORY` (the best model of
    a run, in simulations), perhaps with `@SIDE` to resize images to that many pixels; or your own
    `package.module:function`. The model then takes vectors."""
    client_data: str = ""
    """Path of a folder with one sub-folder per simulated client, each in the form of a client's own
    data on a device; `dataset` is then the server's, or `none`."""
    partition: PartitionName = "iid"
    """How a simulation splits the training data over the clients. With FedMatch's `imbalanced` a
    client has half of its points in one class, 0.15 in the class before and after it each, and the
    rest in the others."""
    points_per_client: Annotated[int, Field(ge=0)] = 0
    """Keep only this many points per client (simulation); 0 keeps all. `majority` and `imbalanced`
    draw them in their class proportions, before any class runs out."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Fraction of the training data, with labels, that selects the best round at the server."""
    server_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the training data, with labels, that the server keeps for methods that train
    there. It is withheld from the clients under every method, so that comparisons share splits."""
    test_prior: str = "uniform"
    """Class priors at test time (pi): `uniform`, K numbers separated by commas, `sets` (mean of all
    clients' sets), or `em` (train for `uniform`, estimate pi from the server's test images)."""

    model: str = "cnn-small"
    """Name of a built-in model, `torchvision:NAME` for one of torchvision's, or
    `package.module:function` of your own; `+head` behind it adds a second linear layer."""
    model_width: Annotated[int, Field(ge=1, le=65536)] = ModelOptions().width
    """Units of each hidden layer of `mlp`."""
    model_layers: Annotated[int, Field(ge=1, le=64)] = ModelOptions().layers
    """Number of hidden layers of `mlp`."""
    model_dropout: Annotated[float, Field(ge=0, lt=1)] = ModelOptions().dropout
    """Probability of dropout after every hidden layer of `mlp`, in training."""
    start_from: str = ""
    """Source of the initial weights: output directory of a run, `.safetensors` file, or
    `torchvision` (pretrained, for its own models). A last layer for another number of classes keeps
    its random weights."""
    frozen_rounds: Annotated[int, Field(ge=0)] = 0
    """First rounds in which only the last linear layer is trained (with `start-from`); batch norm
    keeps its statistics in them. Afterwards all layers are trained."""
    init_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of all randomly initialized parameters before round 1, including biases and the gains
    of batch norm."""
    num_rounds: Annotated[int, Field(ge=1)] = 30
    """Communication rounds (R)."""
    local_epochs: Annotated[int, Field(ge=1)] = 2
    """Local epochs per round (E)."""
    batch_size: Annotated[int, Field(ge=0)] = 16
    """Local batch size (B); 0 takes all points of a client as one batch."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Local optimizer, new in every round."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Local step size (learning rate)."""
    learning_rate_schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """How step sizes change over the rounds; `cosine` multiplies them in round t by
    (1 + cos(pi (t - 1)/T))/2 and keeps them constant from round T on; `plateau` divides them
    whenever the validation loss at the server has stopped falling."""
    learning_rate_rounds: Annotated[int, Field(ge=0)] = 0
    """T, rounds until `cosine` would reach 0; 0 takes `num-rounds` or, for a method in stages, the
    length of the stage."""
    learning_rate_patience: Annotated[int, Field(ge=1)] = 5
    """Evaluations without a lower validation loss after which `plateau` divides step sizes; the
    count then restarts from 0."""
    learning_rate_factor: Annotated[float, Field(gt=1)] = 3.0
    """Divisor of step sizes in `plateau`."""
    learning_rate_patience_scope: Literal["server", "client"] = "server"
    """Who runs `plateau`: the `server`, with all evaluations and for all step sizes; or each
    `client`, with the losses of the rounds in which it takes part, for its own step size
    (FedMatch's authors' code). The server then only adapts its own training."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of local SGD."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty of the local optimizer."""
    l1: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the L1 penalty on all parameters."""
    augment: AugmentName = "none"
    """Augmentation of local batches: `rotate` by up to 20 degrees, `flip` left-right,
    `translate-flip` (by up to 4 pixels, mirrored border), `rotate-flip` (by up to 10 degrees),
    `affine` (rotated by up to 15 degrees, scaled by 0.9 to 1.1, shifted by up to 2 pixels). For
    vectors: `noise` or `dropout`, as the next two settings say."""
    noise: Annotated[float, Field(ge=0)] = 0.2
    """Standard deviation of the Gaussian noise that `augment = "noise"` and strong views add to
    vectors; standardized columns have standard deviation 1."""
    feature_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Probability with which `augment = "dropout"` and strong views set a feature of a vector to 0,
    the mean of a standardized column."""

    base: BaseName = "fedavg"
    """Federated optimizer that the method wraps; with `local` clients share nothing and each
    continues from its own model."""
    fraction_train: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the clients sampled in every round."""
    fraction_evaluate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the clients that get the model and report its loss on held-out data, the same
    ones in every round."""
    client_weights: Literal["uniform", "examples"] = "uniform"
    """Weights of the mean over clients: equal (1/C), or by number of points n_c."""
    selection: Literal["auto", "validation", "balanced", "heldout", "last"] = "auto"
    """Criterion of the best round: validation error, the same with all classes weighing equally
    (`balanced`), loss on held-out unlabeled data, or the last round; `auto` takes validation if the
    server has labels, else held-out data."""
    evaluate: Literal["global", "local"] = "global"
    """Which errors are measured: those of the combined model, or (`local`) the mean over the models
    that the clients of the round return."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Evaluate at the server every so many rounds; the last round is always evaluated."""
    measure_test_error: bool = True
    """Measure errors and all else (docs/measures.md) on the server's test set. With `false` its
    labels are not read; searches for settings use this (docs/tune.md)."""
    measure_forgetting: bool = False
    """Also measure the error on the labeled training points at every evaluation (simulations on
    partly labeled data, and methods that train at the server)."""
    calibration: Literal["none", "temperature"] = "none"
    """At the end of the run, `temperature` fits one number on the server's validation labels, by
    which the saved model's logits are divided in predictions (docs/measures.md)."""
    on_client_failure: Literal["stop", "continue"] = "stop"
    """If a client fails or is not connected: `stop` ends the run, `continue` leaves the client out
    until it comes back."""
    connect_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that clients have to connect before the first round. If fewer connect than node
    configs announce, `stop` ends the run, and `continue` starts with these; others join later. The
    same limit holds for a node's answer about its identity, and for the setup of a client that
    joins or comes back later."""
    round_timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds a round, or the phase before the first one, waits for replies."""
    max_update_norm: Annotated[float, Field(ge=0)] = 0.0
    """Largest L2 norm of an update, the client's model (or FedMatch's parts) minus the global one,
    over all floating-point values (batch-norm statistics too). A larger update is refused, and its
    client counts as failed; 0 sets no bound. Not for bases whose clients return more than a
    model."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of all random numbers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run."""
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Number format in training; `auto` takes bfloat16 for models of 150,000 weights or more if the
    processor multiplies it faster. Each process decides for itself: choose one explicitly if
    results must be bit-identical across machines (different CPUs, a run resumed elsewhere)."""
    client_threads: Annotated[int, Field(ge=0, le=4096)] = 1
    """CPU threads of one client; 0 takes all. Results can differ between thread counts."""
    output: str = ""
    """Directory of results; empty takes `runs/<method>-<dataset>-<time>`."""
    resume: str = ""
    """Directory of an interrupted run to continue."""
    tracking: Literal["none", "tensorboard", "mlflow", "tensorboard,mlflow"] = "none"
    """Tracking tools that also get the metrics of a run: see docs/tracking.md."""

    @field_validator("features")
    @classmethod
    def _check_features(cls, value: str) -> str:
        check_features(value)
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
    def _check_model(self) -> Self:
        if self.model.removesuffix("+head") != "mlp":
            for name, value in self.model_options._asdict().items():
                if value != ModelOptions._field_defaults[name]:
                    raise ValueError(f"model-{name} = {value} is for model = 'mlp'")
        return self

    @property
    def model_options(self) -> ModelOptions:
        """Width, layers and dropout of the model."""
        return ModelOptions(self.model_width, self.model_layers, self.model_dropout)

    @model_validator(mode="after")
    def _check_momentum(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError("momentum is for optimizer = 'sgd'")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        for schedule, names in OF_SCHEDULES.items():
            for name in names if schedule != self.learning_rate_schedule else ():
                if getattr(self, name) != SharedSettings.model_fields[name].default:
                    key = name.replace("_", "-")
                    raise ValueError(f"{key} is for learning-rate-schedule = {schedule!r}")
        return self

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if self.start_from == PRETRAINED and not self.model.startswith(f"{PRETRAINED}:"):
            raise ValueError(
                f"start-from = 'torchvision' is for models of torchvision, and model = "
                f"{self.model!r} is none: choose 'torchvision:NAME'"
            )
        return self

    @model_validator(mode="after")
    def _check_frozen(self) -> Self:
        if self.frozen_rounds and not self.start_from:
            raise ValueError(
                f"frozen-rounds = {self.frozen_rounds} would keep random weights: name trained "
                "ones with start-from"
            )
        if self.frozen_rounds and self.base == "scaffold":
            raise ValueError(
                f"frozen-rounds = {self.frozen_rounds} does not go with base = 'scaffold', whose "
                "variates are of all layers: choose another base"
            )
        return self

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.start_from and self.init_scale != 1:
            raise ValueError(
                f"init-scale = {self.init_scale:g} is for fresh weights, and start-from = "
                f"{self.start_from!r} names trained ones: leave one of both out"
            )
        return self

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        if self.validation_fraction + self.server_fraction >= 1:
            raise ValueError(
                f"validation-fraction = {self.validation_fraction} and server-fraction = "
                f"{self.server_fraction} must leave training data: their sum must be below 1"
            )
        return self

    @model_validator(mode="after")
    def _check_base(self) -> Self:
        if self.base == "fednova" and self.optimizer != "sgd":
            raise ValueError(
                "base = 'fednova' needs optimizer = 'sgd': its normalisation counts SGD's steps"
            )
        if self.base in UNWEIGHTED and self.client_weights != "uniform":
            raise ValueError(
                f"client-weights = {self.client_weights!r} has no effect on base = {self.base!r}, "
                "which weighs no client more than another"
            )
        if self.base == "local" and self.evaluate != "local":
            raise ValueError(
                "base = 'local' needs evaluate = 'local': there is no combined model to measure"
            )
        if self.base == "local" and self.test_prior == "em":
            raise ValueError(
                "test-prior = 'em' asks the combined model, and with base = 'local' there is none"
            )
        return self

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        if self.max_update_norm and self.base in UNMEASURED:
            raise ValueError(
                f"max-update-norm = {self.max_update_norm:g} measures models alone, and base = "
                f"{self.base!r} also {UNMEASURED[self.base]}: leave it out or choose another base"
            )
        return self

    @model_validator(mode="after")
    def _check_dataless(self) -> Self:
        given = [bool(self.class_names), bool(self.input_shape)]
        if self.dataset == "none" and not all([given[0], given[1] or bool(self.columns)]):
            raise ValueError("dataset = 'none' needs class-names and input-shape, or columns")
        if self.dataset != "none" and any(given):
            raise ValueError("class-names and input-shape are for dataset = 'none'")
        if self.dataset == "none" and not self.measure_test_error:
            raise ValueError(
                "measure-test-error = False has no effect with dataset = 'none', where the server "
                "has no test set: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_calibration(self) -> Self:
        if self.calibration != "none" and self.dataset == "none":
            raise ValueError(
                f"calibration = {self.calibration!r} needs labeled data at the server, and dataset "
                "= 'none' has none"
            )
        return self

    @model_validator(mode="after")
    def _check_estimate(self) -> Self:
        if self.test_prior == "em" and self.dataset == "none":
            raise ValueError(
                "test-prior = 'em' needs test images at the server, and dataset = 'none' has none"
            )
        return self

    @model_validator(mode="after")
    def _check_evaluate(self) -> Self:
        if self.evaluate == "local" and self.selection == "heldout":
            raise ValueError(
                "selection = 'heldout' is a loss of the combined model: it needs evaluate = "
                "'global'"
            )
        if self.evaluate == "local" and self.calibration != "none":
            raise ValueError(
                f"calibration = {self.calibration!r} is for the combined model: it needs evaluate "
                "= 'global'"
            )
        if self.fraction_evaluate != 1 and self.selection in ("validation", "balanced", "last"):
            raise ValueError(
                f"fraction-evaluate = {self.fraction_evaluate} has no effect with selection = "
                f"{self.selection!r}, for which no client evaluates: leave it out"
            )
        return self

    def is_evaluated(self, round_number: int) -> bool:
        """Whether round ``round_number``, counted from 1, ends with an evaluation."""
        return round_number % self.evaluate_every == 0 or round_number == self.num_rounds

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
