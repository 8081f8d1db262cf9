"""Parts of a run: what its files hold."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from fedul_flwr.data.run_files.records import Rounds

LARGEST_POINT = 2**28
"""Most numbers of a point, and most classes, that a run's files may name."""


class Measured(BaseModel):
    """Measures of predictions: percent, but AUC in [0, 1], NLL in nats, Brier score in [0, 2].

    Attributes
    ----------
    round : whose model has predicted.
    points : how many points.
    recall, precision : of each class.
    confusion : ``K`` rows of points of each class by the class that was predicted.
    reliability : points, mean confidence and accuracy in each bin of confidence.
    """

    round: int | None = None
    points: int | None = None
    error: float | None = None
    balanced_accuracy: float | None = None
    auc: float | None = None
    ece: float | None = None
    nll: float | None = None
    brier: float | None = None
    recall: list[float | None] = Field(default_factory=list)
    precision: list[float | None] = Field(default_factory=list)
    confusion: list[list[int]] = Field(default_factory=list)
    reliability: dict[str, list[float | None]] | None = None


class PointScore(BaseModel):
    """Score of labels: points, and percent of them that are wrong, and without a label."""

    points: int = 0
    error: float | None = None
    balanced_accuracy: float | None = None
    unreached: float | None = None


class ClientScore(PointScore):
    """Score of a client's labels."""

    id: int


class Coverage(BaseModel):
    """Percent of wrong labels among the most confident points, over their share of all."""

    share: list[float]
    error: list[float]


class LabelScore(PointScore):
    """Score of the labels of one source; without an error where no true label is known."""

    recall: list[float | None] = Field(default_factory=list)
    precision: list[float | None] = Field(default_factory=list)
    confusion: list[list[int]] = Field(default_factory=list)
    coverage: Coverage | None = None
    clients: list[ClientScore] = Field(default_factory=list)


class LabelScores(BaseModel):
    """Scores by source, on points that are ``"new"`` or ``"unlabeled"``."""

    points: str = ""
    sources: dict[str, LabelScore] = Field(default_factory=dict)


class Disclosed(BaseModel):
    """What left each owner, who sees it, and when."""

    what: str
    reader: str
    often: str


class Disclosures(BaseModel):
    """What left the owners of a run, what is not protected, and the digest of its settings."""

    settings: str = ""
    sent: list[Disclosed] = Field(default_factory=list)
    unprotected: list[str] = Field(default_factory=list)


class PersonalErrors(BaseModel):
    """Errors (percent) of a client's personal model and of the run's model."""

    model_config = ConfigDict(extra="allow")

    client: int
    global_test_error: float | None = None
    test_error: float | None = None
    global_error: float | None = None
    error: float | None = None
    labels_aside: int = 0
    differs: bool = False
    missing: str = ""


class Personal(BaseModel):
    """Errors of a simulation's personal models."""

    model_config = ConfigDict(extra="allow")

    clients: list[PersonalErrors] = Field(default_factory=list)


class DataInfo(BaseModel):
    """What a run says of its data.

    Attributes
    ----------
    input_shape : of a point: ``(height, width, channels)``, ``(d,)`` of a vector, ``()`` of a text.
    columns : names of a vector's numbers, if it has some.
    class_names : K names.
    num_clients : of a simulation; ``None`` in any other run.
    test_prior : ``(K,)``, class priors that the model is trained for.
    """

    model_config = ConfigDict(frozen=True)

    input_shape: tuple[StrictInt, ...] | None = None
    columns: tuple[str, ...] | None = None
    num_classes: StrictInt = 0
    class_names: tuple[str, ...] = ()
    num_clients: int | None = None
    test_prior: tuple[float, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Name classes by their numbers where their names are missing."""
        if not isinstance(values, dict):
            return values
        names, count = values.get("class_names"), values.get("num_classes")
        if isinstance(names, list | tuple) and count in (None, len(names)):
            return values | {"class_names": [*map(str, names)], "num_classes": len(names)}
        shown = range(count) if isinstance(count, int) and count <= LARGEST_POINT else ()
        return values | {"class_names": [*map(str, shown)], "num_classes": count or 0}

    @property
    def is_known(self) -> bool:
        """Whether it says what a model takes and returns."""
        shape = self.input_shape
        is_point = shape is not None and len(shape) in (0, 1, 3) and all(n > 0 for n in shape)
        sizes = (math.prod(shape or ()), self.num_classes)
        return is_point and all(1 <= n <= LARGEST_POINT for n in sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point, ``()`` where it is not known."""
        return self.input_shape or ()


class PersonalSummary(BaseModel):
    """Mean errors (percent) of personal models and of the run's model, where they are known."""

    kind: str
    round: int
    failures: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    measured_on: str | None = None
    clients: int = 0
    error: float | None = None
    global_error: float | None = None
    better: int = 0
    worse: int = 0


class PriorFit(BaseModel):
    """Sets whose class priors were checked, those that do not fit, and mean distances."""

    sets: int = 0
    misfits: int = 0
    told_distance: float | None = None
    found_distance: float | None = None
    misfit_distance: float | None = None


class Summary(BaseModel):
    """What came of a run: errors in percent, times in seconds, traffic in bytes.

    Entries of stages of somebody's own are in it under their names, too. An entry that a run does
    not have is not in its file.
    """

    model_config = ConfigDict(extra="allow")

    status: str = ""
    method: str = ""
    base: str | None = None
    model: str | None = None
    dataset: str | None = None
    secure: str | None = None
    partition: str | None = None
    num_clients: int | None = None
    answered_clients: int | None = None
    rounds: int | None = None
    seed: int | None = None
    selection: str | None = None
    evaluate: str | None = None
    best_round: int | None = None
    test_error: float | None = None
    final_test_error: float | None = None
    validation_error: float | None = None
    known_error: float | None = None
    known_error_interval: list[float] | None = None
    known_confusion: list[list[float]] | None = None
    known_from: str = ""
    owners_differ: float | None = None
    misfits: int | None = None
    misfitting_clients: list[int] = Field(default_factory=list)
    start_test_error: float | None = None
    start_validation_error: float | None = None
    test_prior: list[float] | None = None
    test_prior_source: str | None = None
    validation_balanced_error: float | None = None
    validation_prior_error: float | None = None
    temperature: float | None = None
    test_prior_estimate: list[float] | None = None
    test_error_reweighed: float | None = None
    balanced_accuracy: float | None = None
    auc: float | None = None
    ece: float | None = None
    nll: float | None = None
    brier: float | None = None
    ece_bins: int | None = None
    test_error_by_share: list[float] | None = None
    measures: dict[str, Measured] = Field(default_factory=dict)
    scored_points: str | None = None
    errors: dict[str, float | None] = Field(default_factory=dict)
    prior_fit: PriorFit = PriorFit()
    epsilon: float | None = None
    delta: float | None = None
    releases: int | None = None
    epsilon_covers: str | None = None
    conspirators: str | None = None
    budget_exhausted: bool = False
    stopped_early: bool = False
    personal: PersonalSummary | None = None
    warnings: list[str] = Field(default_factory=list)
    seconds_total: float | None = None
    seconds_per_round: float | None = None
    seconds_waiting: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    percent_up: float | None = None
    percent_down: float | None = None
    nonzero_up_percent: float | None = None
    nonzero_down_percent: float | None = None
    released_down_percent: float | None = None
    failures: int | None = None
    failed: Rounds = Field(default_factory=dict)
    away: Rounds = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    owners: Rounds = Field(default_factory=dict)

    @property
    def entries(self) -> dict[str, Any]:
        """What is in its file."""
        return self.model_dump(exclude_unset=True)
