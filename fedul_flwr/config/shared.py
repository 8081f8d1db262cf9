"""The settings that all methods share."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import only_with, only_without
from fedul_flwr.config.training_settings import TrainingSettings

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
UNMEASURED = ("scaffold", "fednova")
"""Bases whose clients return more than a model, which `max-update-norm` cannot bound: changes of
variates, which have other units, and numbers of steps by which updates are scaled."""


class SharedSettings(TrainingSettings):
    """Settings of a run that do not belong to one method."""

    base: BaseName = "fedavg"
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
    selection: Literal["auto", "validation", "balanced", "heldout", "last"] = "auto"
    """Criterion of the best round: validation error, the same with all classes weighing equally
    (`balanced`), loss on held-out unlabeled data, or the last round; `auto` takes validation if the
    server has labels, else held-out data."""
    evaluate: Literal["global", "local"] = "global"
    """Which errors are measured: those of the combined model, or (`local`) the mean over the models
    that the clients of the round return."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Evaluate at the server every so many rounds; the last round is always evaluated."""
    measure_test_error: Annotated[
        bool, only_without("dataset", "none"), only_without("method", "xclp-predict")
    ] = True
    """Measure errors and all else (docs/measures.md) on the server's test set. With `false` its
    labels are not read; searches for settings use this (docs/tune.md)."""
    measure_forgetting: bool = False
    """Also measure the error on the labeled training points at every evaluation (simulations on
    partly labeled data, and methods that train at the server)."""
    calibration: Annotated[
        Literal["none", "temperature"],
        only_without("dataset", "none"),
        only_without("method", "xclp-predict"),
        only_with("evaluate", "global"),
    ] = "none"
    """At the end of the run, `temperature` fits one number on the server's validation labels, by
    which the saved model's logits are divided in predictions (docs/measures.md)."""
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
    same limit holds for a node's answer about its identity, and for the setup of a client that
    joins or comes back later."""
    round_timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds a round, or the phase before the first one, waits for replies."""
    max_update_norm: Annotated[float, Field(ge=0), only_without("base", *UNMEASURED)] = 0.0
    """Largest L2 norm of an update, the client's model (or FedMatch's parts) minus the global one,
    over all floating-point values (batch-norm statistics too). A larger update is refused, and its
    client counts as failed; 0 sets no bound."""

    secure_sum: Annotated[
        Literal["off", "on"],
        only_with("base", *SUMMED),
        only_with("evaluate", "global"),
        only_without("method", "xclp-predict"),
    ] = "off"
    """With `on` the server reads the sum of a round's updates, weights and metrics, and none of a
    single client (docs/privacy.md). Updates travel in fixed point; `max-update-norm` clips them at
    the client. At least three clients must take part in every round."""

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
    output: str = ""
    """Directory of results; empty takes `runs/<method>-<dataset>-<time>`."""
    resume: str = ""
    """Directory of an interrupted run to continue."""
    tracking: Literal["none", "tensorboard", "mlflow", "tensorboard,mlflow"] = "none"
    """Tracking tools that also get the metrics of a run: see docs/tracking.md."""

    @model_validator(mode="after")
    def _check_frozen_rounds(self) -> Self:
        if self.frozen_rounds and self.base == "scaffold":
            raise ValueError(
                f"frozen-rounds = {self.frozen_rounds} does not go with base = 'scaffold', whose "
                "variates are of all layers: choose another base"
            )
        return self

    @model_validator(mode="after")
    def _check_base(self) -> Self:
        if self.base == "fednova" and self.optimizer != "sgd":
            raise ValueError(
                "base = 'fednova' needs optimizer = 'sgd': its normalization counts SGD's steps"
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
    def _check_dataless(self) -> Self:
        described = any([self.input_shape, self.columns, self.text_column])
        if self.dataset == "none" and not (self.class_names and described):
            raise ValueError(
                "dataset = 'none' needs class-names and input-shape, columns or text-column"
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
        return self

    @property
    def has_sums(self) -> bool:
        """Whether a run has secure sums: of updates, or of columns alone."""
        return self.sums_updates or self.standardize_sum == "masked"

    @property
    def sums_updates(self) -> bool:
        """Whether the server reads the sum of updates alone."""
        return self.secure_sum == "on"

    @property
    def sums_heldout_losses(self) -> bool:
        """Whether the server reads the sum of held-out losses alone."""
        return self.sums_updates and self.selection == "heldout"

    @property
    def tells_class_masses(self) -> bool:
        """Whether each client tells the server how many points of each class it expects."""
        return self.test_prior == "sets" and not self.sums_updates

    def is_evaluated(self, round_number: int) -> bool:
        """Whether round ``round_number``, counted from 1, ends with an evaluation."""
        return round_number % self.evaluate_every == 0 or round_number == self.num_rounds
