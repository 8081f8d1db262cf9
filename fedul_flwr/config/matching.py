"""Settings of FedMatch and of the consistency methods it is compared with."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings

Weight = Annotated[float, Field(ge=0)]
Confidence = Annotated[float, Field(ge=0, lt=1)]


class LabelPlaceSettings(Settings):
    """Where labels are (FedMatch, section 2.2)."""

    labels_at: Literal["clients", "server"] = "clients"
    """Who has labels: the clients for some of their points, or the server alone, which then trains
    on a labeled set of its own before every round (table `server`)."""


class ScenarioSettings(LabelPlaceSettings):
    """Where labels are, and when unlabeled points arrive (FedMatch, sections 2.2 and 6.1)."""

    streaming_steps: Annotated[int, Field(ge=1)] = 1
    """Steps (T) in which the clients' unlabeled points arrive, equally many in each; a client
    trains on those of the current step. 1 gives them all points at once. With all labels
    (`all-labels`) it is the labeled points that arrive."""
    rounds_per_step: Annotated[int, Field(ge=1)] = 10
    """Rounds of a step; the last step goes on to the end of the run."""

    @model_validator(mode="after")
    def _check_rounds(self) -> Self:
        default = type(self).model_fields["rounds_per_step"].default
        if self.streaming_steps == 1 and self.rounds_per_step != default:
            raise ValueError("scenario.rounds-per-step is for scenario.streaming-steps above 1")
        return self


class SupervisedPartSettings(Settings):
    """What methods do with labeled points."""

    supervised_weight: Annotated[float, Field(gt=0)] = 10.0
    """Weight λ_s of the cross-entropy of labeled points, at clients and server."""


class ViewSettings(SupervisedPartSettings):
    """What consistency methods do with unlabeled points."""

    unlabeled_batch_size: Annotated[int, Field(ge=0)] = 100
    """Unlabeled points of a step (B_U); every batch of `batch-size` labeled ones has so many
    beside it. 0 spreads all of them evenly over an epoch's labeled batches and, at a client
    without labels, takes `batch-size`."""
    randaugment: Literal["paper", "release"] = "paper"
    """RandAugment of its paper, different operations for an image and magnitudes of 10; or of
    FedMatch's authors' code, operations with repetition and strengths of its own, weaker ones but
    for rotations."""
    operations: Annotated[int, Field(ge=1, le=13)] = 6
    """Operations of RandAugment on every image, of 13."""
    least_magnitude: Annotated[int, Field(ge=0, le=10)] = 2
    """Least magnitude of an operation, of 10; each is drawn at random. With `ssl.randaugment =
    "release"` it is the least bound: one is drawn for an image, and magnitudes are below it."""
    most_magnitude: Annotated[int, Field(ge=0, le=10)] = 5
    """Largest magnitude of an operation, or largest bound."""

    @property
    def magnitudes(self) -> tuple[int, int]:
        """Least and largest magnitude."""
        return self.least_magnitude, self.most_magnitude

    @model_validator(mode="after")
    def _check_magnitudes(self) -> Self:
        if self.least_magnitude > self.most_magnitude:
            raise ValueError(
                f"ssl.least-magnitude = {self.least_magnitude} must not be above "
                f"ssl.most-magnitude = {self.most_magnitude}"
            )
        if self.randaugment == "release" and self.least_magnitude == 0:
            raise ValueError(
                "ssl.least-magnitude = 0 is no bound: with ssl.randaugment = 'release' it must be "
                "at least 1"
            )
        return self


class ConsistencySettings(ViewSettings):
    """Labeled and unlabeled points in one loss: weights, batches and views."""

    unsupervised_weight: Weight = 1.0
    """Weight λ_u of the consistency loss."""


class UDASettings(Settings):
    """Unsupervised data augmentation (Xie et al. 2020, as in FedMatch, appendix A.1)."""

    signal_annealing: Literal["exponential", "linear", "logarithmic", "none"] = "exponential"
    """Training-signal annealing: how the probability above which labeled points are left out grows
    over the rounds, from 1/K to 1. It is for clients; the server trains on all of its points."""
    threshold: Confidence = 0.0
    """Least top probability of a point that is trained to be consistent."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sharpening of the target; 1 leaves it as it is."""


class FixMatchSettings(Settings):
    """FixMatch with the image itself as weak view (Sohn et al. 2020, as in FedMatch)."""

    threshold: Confidence = 0.85
    """Least top probability (τ) of a point that is trained on its label."""


class FedMatchSettings(Settings):
    """FedMatch: inter-client consistency and disjoint learning of sigma and psi."""

    consistency_weight: Weight = 1e-2
    """Weight λ_ICCS of the consistency loss Φ (eq. 2)."""
    l2_weight: Weight = 10.0
    """Weight λ_L2 of ‖σ − ψ‖² (eq. 5)."""
    l1_weight: Weight = 1e-4
    """Weight λ_L1 of ‖ψ‖₁ (eq. 5); the text has 1e-5 with labels at the server."""
    threshold: Confidence = 0.85
    """Least top probability (τ) of a point that is learned from; 0.75 in the authors' code."""
    helpers: Annotated[int, Field(ge=0)] = 2
    """Other clients' models (H) that vote on pseudo labels and are agreed with; 0 is FedMatch
    without inter-client consistency."""
    helper_interval: Annotated[int, Field(ge=1)] = 10
    """Helpers are sent in every round whose number is a multiple of this."""
    ties: Literal["own", "lowest"] = "own"
    """Of several classes with most votes, the client's own if it is among them, or the lowest
    (authors' code)."""
    keep_helpers: bool = False
    """Whether clients go on with their last helpers in between; the authors' code does not."""
    decomposition: bool = True
    """Whether the model's weights are θ = σ + ψ, σ learning from labels and ψ from unlabeled
    points; without it both kinds of steps train θ."""
    psi_factor: Weight = 0.2
    """First ψ as a multiple of the first σ (authors' code); with `start-from` their sum is that
    model."""
    evaluate_with: Literal["both", "sigma", "psi"] = "both"
    """What is evaluated and saved as the model: σ + ψ, or one of them alone (ablation)."""
    psi_cutoff: Weight = 5e-6
    """Values of ψ below this in size count as 0 at evaluation; 1e-5 in the authors' code with
    labels at the server."""
    difference_threshold: Weight = 5e-5
    """Changes of a weight below this in size are not sent, in either direction; 1e-5 in the
    authors' code with labels at the server, 0 sends all."""

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
