"""Settings of FedMatch and of the consistency methods it is compared with."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import ADAPTIVE, OR_ADAPTIVE, Settings

Weight = Annotated[float, Field(ge=0)]
Confidence = Annotated[float, Field(ge=0, lt=1)]
AdaptiveConfidence = Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE]


class LabelPlaceSettings(Settings):
    """Where labels are (FedMatch, section 2.2)."""

    table: ClassVar[str] = "scenario"
    labels_at: Literal["clients", "server"] = "clients"
    """Who has labels: the clients for some of their points, or only the server, which then trains
    on its own labeled set before every round (table `server`)."""


class ScenarioSettings(LabelPlaceSettings):
    """Where labels are, and when unlabeled points arrive (FedMatch, sections 2.2 and 6.1)."""

    streaming_steps: Annotated[int, Field(ge=1)] = 1
    """Steps (T) in which the clients' unlabeled points arrive, equally many in each; a client
    trains on those of the current step. With 1 all points are there from the start. With
    `all-labels` the labeled points arrive in this way."""
    rounds_per_step: Annotated[int, Field(ge=1)] = 10
    """Rounds per step; the last step lasts until the end of the run."""

    @model_validator(mode="after")
    def _check_rounds(self) -> Self:
        default = type(self).model_fields["rounds_per_step"].default
        if self.streaming_steps == 1 and self.rounds_per_step != default:
            raise ValueError("scenario.rounds-per-step is for scenario.streaming-steps above 1")
        return self


class SupervisedPartSettings(Settings):
    """Training on labeled points."""

    table: ClassVar[str] = "ssl"
    supervised_weight: Annotated[float, Field(gt=0)] = 10.0
    """Weight λ_s of the cross-entropy of labeled points, at clients and server."""


class ViewSettings(SupervisedPartSettings):
    """Unlabeled points in consistency methods: batches and RandAugment."""

    unlabeled_batch_size: Annotated[int, Field(ge=0)] = 100
    """Unlabeled points per step (B_U), along with each batch of `batch-size` labeled ones. 0
    spreads all of them evenly over the labeled batches of an epoch; a client without labels then
    takes `batch-size`."""
    randaugment: Literal["paper", "release"] = "paper"
    """RandAugment as in its paper (distinct operations per image, magnitudes of 10), or as in the
    code of FedMatch's authors (operations may repeat, other strengths, all weaker except for
    rotations)."""
    operations: Annotated[int, Field(ge=1, le=13)] = 6
    """Number of RandAugment's 13 operations applied to every image."""
    min_magnitude: Annotated[int, Field(ge=0, le=10)] = 2
    """Smallest magnitude of an operation, of 10; each is drawn at random. With `ssl.randaugment =
    "release"` it is the smallest bound: a bound is drawn per image, and magnitudes are below it."""
    max_magnitude: Annotated[int, Field(ge=0, le=10)] = 5
    """Largest magnitude of an operation, or largest bound."""

    @property
    def magnitudes(self) -> tuple[int, int]:
        """Smallest and largest magnitude."""
        return self.min_magnitude, self.max_magnitude

    @model_validator(mode="after")
    def _check_magnitudes(self) -> Self:
        if self.min_magnitude > self.max_magnitude:
            raise ValueError(
                f"ssl.min-magnitude = {self.min_magnitude} must not be above "
                f"ssl.max-magnitude = {self.max_magnitude}"
            )
        if self.randaugment == "release" and self.min_magnitude == 0:
            raise ValueError(
                "ssl.min-magnitude = 0 is no bound: with ssl.randaugment = 'release' it must be "
                "at least 1"
            )
        return self


class ConsistencySettings(ViewSettings):
    """Labeled and unlabeled points in one loss: weights, batches and views."""

    unsupervised_weight: Weight = 1.0
    """Weight λ_u of the consistency loss."""


class UDASettings(Settings):
    """Unsupervised data augmentation (Xie et al. 2020, as in FedMatch, appendix A.1)."""

    table: ClassVar[str] = "uda"
    signal_annealing: Literal["exponential", "linear", "logarithmic", "none"] = "exponential"
    """Training-signal annealing: how the probability above which labeled points are skipped grows
    over the rounds, from 1/K to 1. Only for clients; the server trains on all of its points."""
    threshold: Confidence = 0.0
    """Smallest top probability with which a point is in the consistency loss."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Temperature that sharpens the target; 1 does not change it."""


class FixMatchSettings(Settings):
    """FixMatch with the unchanged image as weak view (Sohn et al. 2020, as in FedMatch)."""

    table: ClassVar[str] = "fixmatch"
    threshold: AdaptiveConfidence = ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on its pseudo label. `adaptive` is
    the mean top probability of a client's unlabeled points by the model that it received, so some
    point always reaches it; 0.85 in FedMatch's paper."""


class FedMatchSettings(Settings):
    """FedMatch: inter-client consistency and disjoint learning of sigma and psi."""

    table: ClassVar[str] = "fedmatch"
    consistency_weight: Weight = 1e-2
    """Weight λ_ICCS of the consistency loss Φ (eq. 2)."""
    l2_weight: Weight = 10.0
    """Weight λ_L2 of ‖σ − ψ‖² (eq. 5)."""
    l1_weight: Weight = 1e-4
    """Weight λ_L1 of ‖ψ‖₁ (eq. 5); the text has 1e-5 with labels at the server."""
    threshold: AdaptiveConfidence = ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on. `adaptive` is the mean top
    probability of a client's unlabeled points by the model that it received, so some point always
    reaches it; 0.85 in the text, 0.75 in the authors' code."""
    helpers: Annotated[int, Field(ge=0)] = 2
    """Number of other clients' models (H) that vote on pseudo labels and are targets of the
    consistency loss; 0 is FedMatch without inter-client consistency."""
    helper_interval: Annotated[int, Field(ge=1)] = 10
    """Helpers are sent in every round whose number is a multiple of this."""
    ties: Literal["own", "lowest"] = "own"
    """Class chosen in a tie of votes: the client's own if it is among them, or the lowest one
    (authors' code)."""
    keep_helpers: bool = False
    """Whether clients reuse their last helpers in the rounds between; not in the authors' code."""
    decomposition: bool = True
    """Whether the model's weights are θ = σ + ψ, with σ trained on labeled and ψ on unlabeled
    points; otherwise both train θ."""
    psi_factor: Weight = 0.2
    """Initial ψ as a multiple of the initial σ (authors' code); with `start-from` their sum is that
    model."""
    evaluate_with: Literal["both", "sigma", "psi"] = "both"
    """Weights of the model that is evaluated and saved: σ + ψ, or one of them alone (ablation)."""
    psi_cutoff: Weight = 5e-6
    """Values of ψ smaller than this in magnitude count as 0 at evaluation; 1e-5 in the authors'
    code with labels at the server."""
    difference_threshold: Weight = 5e-5
    """Changes of a weight smaller than this in magnitude are not sent, in either direction; 1e-5 in
    the authors' code with labels at the server; 0 sends all."""

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        of_parts = "l2_weight", "l1_weight", "psi_factor", "evaluate_with", "psi_cutoff"
        of_helpers = "helper_interval", "ties", "keep_helpers"
        for given, needed, keys in (
            (self.decomposition, "decomposition = true", of_parts),
            (self.helpers, "helpers above 0", of_helpers),
        ):
            for key in () if given else keys:
                if getattr(self, key) != type(self).model_fields[key].default:
                    name = key.replace("_", "-")
                    raise ValueError(f"fedmatch.{name} is for fedmatch.{needed}")
        return self
