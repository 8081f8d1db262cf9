"""Differential privacy of a client's points (XCLP): the noise, and its plan from a run's settings.

Directions of features get Gaussian noise before they are coded, labels a randomized response. A
mechanism is (ε, δ)-differentially private if for any two inputs that may differ (here: one point
is replaced by another, or one label by another) and every set of outputs, P(output) ≤ e^ε
P'(output) + δ. Anything computed from the output alone has the same guarantee: codes, distances,
graphs, sums.

Noise is drawn once and stored, because repeated draws would average out: once per round for
features, once per run for labels. Only the noisy values are stored. A client counts its draws and
refuses more than the run's plan has, whatever rounds the server asks for.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.arrays import Arrays, Ints, blocks
from fedul_flwr.config.method_settings import StageSettings, XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import UNLABELED
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import checked_features, directions
from fedul_flwr.propagation.solve import checked_classes
from fedul_flwr.secure.noise import fresh_gaussians, gaussian_sigma, uniforms
from fedul_flwr.secure.session import Entropy, fresh

SENSITIVITY = 2.0
"""Largest distance of two vectors of length 1."""

_BLOCK_NUMBERS = 2**22
"""Size of a block of noise in numbers: 32 MB for any d and n."""


def noisy_directions(
    features: NDArray[np.floating], sigma: float, entropy: Entropy = os.urandom
) -> NDArray[np.float32]:
    """Rows divided by their length, plus Gaussian noise.

    Replacing a row by another changes the result by at most :data:`SENSITIVITY` plus noise. A zero
    row becomes pure noise, so that it cannot be distinguished from others.

    Parameters
    ----------
    features : ``(n, d)``, finite; n may be 0.
    sigma : standard deviation of the noise of every coordinate, above 0.

    Returns
    -------
    ``(n, d)``.
    """
    features = checked_features(features)
    noisy = np.empty(features.shape, dtype=np.float32)
    for rows in blocks(len(features), max(1, _BLOCK_NUMBERS // max(1, features.shape[1]))):
        units = directions(features[rows])
        lengths = np.linalg.norm(units, axis=1, keepdims=True)
        np.divide(units, lengths, out=units, where=lengths > 0)
        noisy[rows] = units + sigma * fresh_gaussians(units.size, entropy).reshape(units.shape)
    return noisy


def randomized_labels(
    labels: ArrayLike, num_classes: int, epsilon: float, entropy: Entropy = os.urandom
) -> Ints:
    """Randomized response: a label stays with probability e^ε / (e^ε + K - 1).

    Otherwise it becomes one of the other classes with equal probability (Warner 1965; with K
    answers, Kairouz, Bonawitz and Ramage 2016). Replacing a label changes the probability of any
    outcome by at most the factor e^ε: label differential privacy without δ (Ghazi et al. 2021).
    Unlabeled points stay unlabeled: which points have labels is not hidden.

    Parameters
    ----------
    labels : integers ``(n,)``, classes ``0..K-1`` or -1 for unlabeled.
    num_classes : K, at least 1.
    epsilon : ε, above 0.

    Returns
    -------
    int64 ``(n,)``.
    """
    checked = checked_classes(labels, num_classes)
    others = num_classes - 1
    # Rounding to multiples of 2^-53 can only increase the probability of a change, even for
    # large ε.
    change = others / (math.exp(min(epsilon, 700)) + others)
    chance, which = _raw(2 * len(checked), entropy).reshape(2, -1)
    moved = (checked + 1 + (which % max(1, others)).astype(np.int64)) % num_classes
    return np.where((checked != UNLABELED) & (uniforms(chance) < change), moved, checked)


def _raw(count: int, entropy: Entropy) -> NDArray[np.uint64]:
    """Unpredictable bits, because reproducible noise could be subtracted."""
    return fresh(8 * count, entropy).view(np.uint64)


@dataclass(frozen=True)
class PrivacyPlan:
    """Privacy guarantees for every client over the whole run.

    Attributes
    ----------
    codes_epsilon, delta : ε and δ of all codes together, for one replaced point; ε 0: no privacy.
    labels_epsilon : ε of each label; 0: no privacy.
    releases : largest number of propagations in which a client takes part.
    trains : whether a model is also trained.

    Examples
    --------
    >>> plan = PrivacyPlan(1.0, delta=1e-5, labels_epsilon=0.0, releases=4, trains=False)
    >>> round(plan.sigma, 2)
    14.92
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
                "run together: randomized response, once. Which points have labels is not hidden."
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


NOISY_FEATURES, RANDOMIZED_LABELS = "noisy-features", "randomized-labels"
"""Names under which the client stores noisy features and randomized labels."""

FEATURES, AT_ROUND, RELEASES, LABELS = "features", "round", "releases", "labels"
SIGMA, DRAWS = "sigma", "draws"
"""Names of stored arrays: noisy features, their round, the plan's number of releases; labels; the
plan's noise; how often features were drawn so far."""

_ANY_ROUND = sys.maxsize


class Store(Protocol):
    """A client's state between messages, see :class:`fedul_flwr.federated.client_data`."""

    @property
    def directory(self) -> Path | None:
        """Where a simulation keeps it; ``None`` on a device."""

    def load(self, name: str, server_round: int) -> Arrays:
        """Arrays stored before ``server_round``."""

    def save(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Store arrays as of the end of ``server_round``."""

    def ephemeral(self, name: str) -> Arrays:
        """Arrays that are never written to a file."""

    def set_ephemeral(self, name: str, arrays: Arrays) -> None:
        """Store such arrays; an empty mapping deletes them."""


class ClientNoise:
    """Adds noise to features and labels of one client's points as the run's plan demands.

    Parameters
    ----------
    plan : the noise of the run.
    store : the client's state.
    client : the client's number.
    resumed : whether the run resumes an earlier one.
    forgetful : whether the client has lost its state since the run began.
    spend : notes a release of ``"codes"`` or ``"distances"`` and its μ², or refuses it.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        store: Store,
        client: int,
        *,
        resumed: bool,
        forgetful: bool,
        spend: Callable[[str, float], object] = lambda *_: None,
    ) -> None:
        self.plan = plan
        self._store = store
        self._name = f"Client {client}"
        self._resumed = resumed
        self._forgetful = forgetful
        self._spend = spend

    def features(
        self, features: NDArray[np.floating[Any]], server_round: int
    ) -> NDArray[np.floating[Any]]:
        """``(n, d)``, input of the codes in a round: ``features``, or noisy directions."""
        plan = self.plan
        if not plan.codes_epsilon:
            self._spend("distances", math.inf)
            return features
        stored = self._store.load(NOISY_FEATURES, server_round + 1)
        latest = self._store.load(NOISY_FEATURES, _ANY_ROUND)
        if (stored and stored[RELEASES] != plan.releases) or (
            latest and latest[SIGMA] != plan.sigma
        ):
            raise UserError(
                f"{self._name}: num-rounds, xclp.codes-epsilon or xclp.dp-delta has changed since "
                "noise was drawn for them.",
                "privacy-noise-spent",
            )
        if stored and stored[AT_ROUND] == server_round:
            self._refuse_change(len(stored[FEATURES]) == len(features))
            return stored[FEATURES]
        draws = int(latest[DRAWS]) if latest else 0
        if draws >= plan.releases:
            raise UserError(
                f"{self._name}: xclp.codes-epsilon is for {plan.releases} propagation(s) of the "
                "run, and all of them have been; the server asked for one more.",
                "privacy-noise-spent",
            )
        self._refuse_second_draw()
        self._spend("codes", (SENSITIVITY / plan.sigma) ** 2)
        noisy = noisy_directions(features, plan.sigma)
        drawn: Mapping[str, NDArray[Any]] = {
            FEATURES: noisy,
            AT_ROUND: np.array(server_round),
            RELEASES: np.array(plan.releases),
            SIGMA: np.array(plan.sigma),
            DRAWS: np.array(draws + 1),
        }
        self._store.save(NOISY_FEATURES, server_round, dict(drawn))
        return noisy

    def labels(self, labels: Ints, num_classes: int, server_round: int) -> Ints:
        """``(n,)``, labels that are propagated to other clients: ``labels``, or randomized."""
        epsilon = self.plan.labels_epsilon
        if not epsilon:
            return labels
        drawn = self._store.load(RANDOMIZED_LABELS, _ANY_ROUND).get(LABELS)
        if drawn is None:
            self._refuse_second_draw()
            drawn = randomized_labels(labels, num_classes, epsilon)
            self._store.save(RANDOMIZED_LABELS, server_round, {LABELS: drawn})
        self._refuse_change(np.array_equal(drawn != UNLABELED, labels != UNLABELED))
        return drawn

    def _refuse_second_draw(self) -> None:
        if self._store.directory is not None:
            return
        if self._resumed:
            raise UserError(
                f"{self._name}: a run with differential privacy cannot resume on a device: its "
                "noise was drawn in the run before, and is gone.",
                "privacy-noise-lost",
            )
        if self._forgetful:
            raise UserError(
                f"{self._name}: a device that has forgotten its noise takes no more part in a run "
                "with differential privacy: drawn once more, it would hide less.",
                "privacy-noise-lost",
            )

    def _refuse_change(self, same: bool) -> None:
        if not same:
            raise UserError(
                f"{self._name}: its points have changed during the run, and noise was drawn for "
                "those before.",
                "privacy-noise-spent",
            )
