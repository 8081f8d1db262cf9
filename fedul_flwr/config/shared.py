"""The settings that all methods share."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedul_flwr.config.base import Settings
from fedul_flwr.learning.class_priors import parse_prior

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
"""Bases to which all clients' models are alike, whatever `client-weights` says."""
UNMEASURED = {
    "scaffold": "adds up changes of variates, which have other units",
    "fednova": "scales updates by the normalisers that clients claim",
}
"""What a base does with other things that clients return beside their models: `max-update-norm`
cannot bound it."""
AugmentName = Literal["none", "rotate", "flip", "translate-flip", "rotate-flip", "affine"]
PRETRAINED = "torchvision"
"""What `start-from` calls the weights that torchvision has for its own models."""
TEST_PRIOR_WORDS = ("uniform", "sets", "em")
OF_SCHEDULES = {
    "cosine": ("learning_rate_rounds",),
    "plateau": (
        "learning_rate_patience",
        "learning_rate_factor",
        "learning_rate_patience_scope",
    ),
}
"""Settings that have an effect with one `learning-rate-schedule` only."""


class SharedSettings(Settings):
    """Settings of a run that do not belong to one method."""

    method: str = "fedul"
    """Name of a built-in method, or `package.module:NAME` of your own."""
    method_options: str = ""
    """Settings of a method of your own as `key=value …`; built-in methods have a table each."""

    dataset: str = "digits"
    """`digits`, a Hugging Face hub name, or the path of a folder with train and test. On devices
    that bring their own data it is the server's test data, or `none`."""
    class_names: str = ""
    """Names of the classes, separated by commas; for `dataset = "none"`."""
    image_shape: str = ""
    """Height x width x channels such as `28x28x1`; for `dataset = "none"`."""
    image_size: Annotated[int, Field(ge=0, le=1024)] = 0
    """Resize images to this many pixels square; 0 keeps them."""
    client_data: str = ""
    """Path of a folder with one sub-folder per client of a simulation, each as a client's own data
    on a device; `dataset` is then the server's, or `none`."""
    partition: PartitionName = "iid"
    """How a simulation splits the training data over the clients. `imbalanced` is FedMatch's: a
    client has half of its points in one class, 0.15 in each neighbour of it, the rest in others."""
    points_per_client: Annotated[int, Field(ge=0)] = 0
    """Keep only so many points per client (simulation); 0 keeps all. `majority` and `imbalanced`
    draw them in their class proportions, before any class is exhausted."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Part of the training data set aside, with labels, at the server to choose the best round."""
    server_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the training data set aside, with labels, at the server for methods that train
    there. It is taken from the clients under every method, so that comparisons share splits."""
    test_prior: str = "uniform"
    """Class priors at test time (pi): `uniform`, K numbers separated by commas, `sets` (mean of all
    clients' sets), or `em` (train for `uniform`, estimate pi from the server's test images)."""

    model: str = "cnn-small"
    """Name of a built-in model, `torchvision:NAME` for one of torchvision's, or
    `package.module:function` of your own; `+head` behind it adds a second linear layer."""
    start_from: str = ""
    """Where the model's first weights come from: output directory of a run, `.safetensors` file, or
    `torchvision` (pretrained, for its own models). A last layer of other classes stays fresh."""
    init_scale: Annotated[float, Field(gt=0)] = 1.0
    """What all fresh parameters of the model are multiplied by, biases and the gains of batch norm
    too, before round 1."""
    num_rounds: Annotated[int, Field(ge=1)] = 30
    """Communication rounds (R)."""
    local_epochs: Annotated[int, Field(ge=1)] = 2
    """Local epochs per round (E)."""
    batch_size: Annotated[int, Field(ge=0)] = 16
    """Local batch size (B); 0 takes all points of a client as one batch."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Local optimiser, new in every round."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Local step size."""
    learning_rate_schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """How step sizes change over the rounds; `cosine` multiplies them in round t by
    (1 + cos(pi (t - 1)/T))/2, and from round T on they stay as they are there; `plateau` divides
    them whenever the validation loss at the server has stopped falling."""
    learning_rate_rounds: Annotated[int, Field(ge=0)] = 0
    """T, rounds until `cosine` would reach 0; 0 takes `num-rounds` or, of a method in stages, the
    length of the stage."""
    learning_rate_patience: Annotated[int, Field(ge=1)] = 5
    """Evaluations without a lower validation loss after which `plateau` divides step sizes; it
    then counts from 0 again."""
    learning_rate_factor: Annotated[float, Field(gt=1)] = 3.0
    """What `plateau` divides step sizes by."""
    learning_rate_patience_scope: Literal["server", "client"] = "server"
    """Who counts for `plateau`: the `server`, all evaluations for all step sizes alike; or every
    `client`, the losses that it is told in the rounds in which it takes part, for its own step size
    (FedMatch's authors' code), and the server for its own training alone."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of local SGD."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty of the local optimiser."""
    l1: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the L1 penalty on all parameters."""
    augment: AugmentName = "none"
    """Augmentation of local batches: `rotate` by up to 20 degrees, `flip` left-right,
    `translate-flip` (by up to 4 pixels, mirrored border), `rotate-flip` (by up to 10 degrees),
    `affine` (rotated by up to 15 degrees, scaled by 0.9 to 1.1, shifted by up to 2 pixels)."""

    base: BaseName = "fedavg"
    """Federated optimiser that the method wraps; with `local` clients share nothing and go on from
    their own models."""
    fraction_train: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the clients sampled in every round."""
    fraction_evaluate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the clients that say their loss on held-out data, the same ones in every round: each
    of them is sent the model."""
    client_weights: Literal["uniform", "examples"] = "uniform"
    """Weights of the mean over clients: 1/C, or by number of points n_c."""
    selection: Literal["auto", "validation", "heldout", "last"] = "auto"
    """Best round by validation error, loss on held-out unlabeled data, or simply the last;
    `auto` takes validation where the server has labels, else held-out data."""
    evaluate: Literal["global", "local"] = "global"
    """Whose errors are measured: the combined model's, or (`local`) the mean of those of the models
    that a round's clients return."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Rounds between two evaluations at the server; the last round is always evaluated."""
    measure_test_error: bool = True
    """Measure errors on the server's test set. `false` leaves its labels unread, as a search for
    settings does (docs/tune.md)."""
    measure_forgetting: bool = False
    """Also measure the error on the labeled training points at every evaluation (simulations on
    partly labeled data, and methods that train at the server)."""
    on_client_failure: Literal["stop", "continue"] = "stop"
    """What a client does to the run that fails, or is not there: end it, or be left out until it
    comes back."""
    connect_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that clients have to connect before the first round. If fewer have than their node
    configs announce, `stop` ends the run and `continue` begins with those; others join later. Also
    the seconds a node has to say who it is, and one that joins or comes back later to get ready."""
    round_timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds a round, or the phase before the first one, waits for replies."""
    max_update_norm: Annotated[float, Field(ge=0)] = 0.0
    """Largest L2 norm of an update, the client's model minus the one the round starts from, over
    all floating-point values (batch-norm statistics too). A larger one is refused, and its client
    has failed; 0 sets no bound. Not for bases to which clients return more than a model."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of everything random."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run."""
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Arithmetic of training; `auto` takes bfloat16 for models of 150,000 weights or more where the
    machine multiplies it faster. Each process decides by its own processor: name one where bits
    must agree between machines (a federation of different CPUs, a run resumed elsewhere)."""
    client_threads: Annotated[int, Field(ge=0)] = 1
    """CPU threads of one client; 0 takes all. Results can differ between thread counts."""
    output: str = ""
    """Directory of results; empty takes `runs/<method>-<dataset>-<time>`."""
    resume: str = ""
    """Directory of an interrupted run to continue."""
    tracking: Literal["none", "tensorboard", "mlflow", "tensorboard,mlflow"] = "none"
    """What else gets the figures of a run, beside its own files: see docs/tracking.md."""

    @field_validator("image_shape")
    @classmethod
    def _check_shape(cls, value: str) -> str:
        if value and not re.fullmatch(r"[1-9]\d*x[1-9]\d*x[13]", value):
            raise ValueError("must be height x width x channels, such as 28x28x1 (channels 1 or 3)")
        return value

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
        given = [bool(self.class_names), bool(self.image_shape)]
        if self.dataset == "none" and not all(given):
            raise ValueError("dataset = 'none' needs class-names and image-shape")
        if self.dataset != "none" and any(given):
            raise ValueError("class-names and image-shape are for dataset = 'none'")
        if self.dataset == "none" and not self.measure_test_error:
            raise ValueError(
                "measure-test-error = False has no effect with dataset = 'none', where the server "
                "has no test set: leave it out"
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
        if self.fraction_evaluate != 1 and self.selection in ("validation", "last"):
            raise ValueError(
                f"fraction-evaluate = {self.fraction_evaluate} has no effect with selection = "
                f"{self.selection!r}, for which no client evaluates: leave it out"
            )
        return self

    def is_evaluated(self, round_number: int) -> bool:
        """Whether a round, from 1, ends with an evaluation."""
        return round_number % self.evaluate_every == 0 or round_number == self.num_rounds

    def class_priors(self) -> list[float] | None:
        """`test-prior` as K numbers; ``None`` where it is a word (in training uniform, but for
        `sets`)."""
        return None if self.test_prior in TEST_PRIOR_WORDS else parse_prior(self.test_prior)

    @property
    def test_prior_source(self) -> str:
        """Where pi comes from: a word that `test-prior` can be, or `given`."""
        return self.test_prior if self.test_prior in TEST_PRIOR_WORDS else "given"

    @field_validator("test_prior")
    @classmethod
    def _check_prior(cls, value: str) -> str:
        if value not in TEST_PRIOR_WORDS:
            parse_prior(value, TEST_PRIOR_WORDS)
        return value
