"""Compute from a run's settings the noise on features and labels in XCLP's propagations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import StageSettings, XCLPSettings
from fedul_flwr.propagation.privacy import SENSITIVITY, gaussian_sigma


@dataclass(frozen=True)
class PrivacyPlan:
    """Privacy guarantees for every client over the whole run.

    Attributes
    ----------
    codes_epsilon, delta : ε and δ of all codes together, for one replaced point; ε 0: no privacy.
    labels_epsilon : ε of each label; 0: no privacy.
    releases : largest number of propagations in which a client takes part.
    trains : whether a model is also trained.
    """

    codes_epsilon: float
    delta: float
    labels_epsilon: float
    releases: int
    trains: bool

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on a direction's coordinates; 0 for none."""
        if not self.codes_epsilon:
            return 0.0
        return gaussian_sigma(self.codes_epsilon, self.delta, SENSITIVITY, self.releases)

    def in_words(self) -> Iterator[str]:
        """Sentences for the log; none without privacy."""
        if self.codes_epsilon:
            yield (
                f"xclp.codes-epsilon = {self.codes_epsilon:g}: all codes of the run together are "
                f"({self.codes_epsilon:g}, {self.delta:g})-differentially private, for one point "
                f"of a client replaced: Gaussian noise of sigma {self.sigma:.4g} on directions of "
                f"features (sensitivity {SENSITIVITY:g}, releases {self.releases})."
            )
        if self.labels_epsilon:
            yield (
                f"xclp.labels-epsilon = {self.labels_epsilon:g}: every label is "
                f"({self.labels_epsilon:g}, 0)-differentially private in all propagations of the "
                "run together: randomised response, once. Which points have labels is not hidden."
            )
        if self.codes_epsilon and not self.trains:
            yield (
                "Not covered: numbers of points and labels, which points have labels, and a model "
                "that features are made with, if it was trained on these points."
            )
        if self.trains and (self.codes_epsilon or self.labels_epsilon):
            yield "Model updates that clients send in training are NOT differentially private."


def privacy_plan(settings: RunConfig) -> PrivacyPlan:
    """The plan that ``settings`` describe.

    A client propagates once if nothing is trained, else at most once in every round of the second
    stage.
    """
    options = settings[XCLPSettings]
    trains = find_method(settings.method).trains
    first = settings[StageSettings].labels_only_rounds
    return PrivacyPlan(
        codes_epsilon=options.codes_epsilon,
        delta=options.dp_delta,
        labels_epsilon=options.labels_epsilon,
        releases=max(1, settings.num_rounds - first) if trains else 1,
        trains=trains,
    )
