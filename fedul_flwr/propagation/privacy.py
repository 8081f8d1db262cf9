"""Differential privacy of a client's points: noise on directions and labels, planned from settings.

Differential privacy of a client's points: Gaussian noise on directions of
features before they are coded, randomized response on labels.

A mechanism is (ε, δ)-differentially private if for any two inputs that may differ (here: one point
is replaced by another, or one label by another) and every set of outputs, P(output) ≤ e^ε
P'(output) + δ. Anything computed from the output alone has the same guarantee: codes, distances,
graphs, sums.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from fedul_flwr.config.method_settings import StageSettings, XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.packed_codes import blocks
from fedul_flwr.data.types import UNLABELED, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import checked_features, directions, gaussians, uniforms
from fedul_flwr.propagation.solve import checked_classes
from fedul_flwr.secure.randomness import Entropy, fresh

SENSITIVITY = 2.0
"""Largest distance of two vectors of length 1."""

_SMALL_STEP = 1e-6

_BLOCK_NUMBERS = 2**22
"""Size of a block of noise in numbers: 32 MB for any d and n."""


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float, releases: int = 1) -> float:
    """Smallest noise with which all releases together are (ε, δ)-differentially private.

    The analytic Gaussian mechanism (Balle and Wang 2018, theorem 8): with noise σ on a value that
    one replacement changes by at most Δ, δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), μ = Δ/σ. T such
    releases, each of which may depend on earlier ones, are together equal to one with noise σ/√T
    (Dong, Roth and Su 2022, section 3).

    Parameters
    ----------
    epsilon : ε, above 0.
    delta : δ, in (0, 1).
    sensitivity : Δ, Euclidean, above 0.
    releases : T, 1 or more.

    Returns
    -------
    σ, the standard deviation per coordinate and release, in units of Δ.

    Raises
    ------
    UserError
        For arguments outside these ranges.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon is {epsilon}; it must be positive and finite")
    if not 0 < delta < 1:
        raise UserError(f"delta is {delta}; it must be between 0 and 1")
    if not 0 < sensitivity < math.inf:
        raise UserError(f"the sensitivity is {sensitivity}; it must be positive and finite")
    if releases < 1:
        raise UserError(f"there are {releases} releases; noise needs 1 or more")
    wanted = math.log(delta)
    low, high = 0.0, math.sqrt(2 * epsilon)
    while _log_delta(epsilon, high) <= wanted:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _log_delta(epsilon, middle) <= wanted:
            low = middle
        else:
            high = middle
    return sensitivity * math.sqrt(releases) / low


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Least ε with which a Gaussian release is (ε, δ)-differentially private.

    The inverse of :func:`gaussian_sigma`, by the same formula.

    Parameters
    ----------
    mu : μ = sensitivity / standard deviation, or the root of the sum of several such squares; 0 or
        more.
    delta : δ, in (0, 1).
    """
    wanted, low, high = math.log(delta), 0.0, 1.0
    if mu == 0 or 2 * ndtr(mu / 2) - 1 <= delta:  # δ(0) = Φ(μ/2) - Φ(-μ/2)
        return 0.0
    while _log_delta(high, mu) > wanted:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _log_delta(middle, mu) > wanted:
            low = middle
        else:
            high = middle
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε), which increases with μ.

    Both terms share the factor exp(-a²/2), a = μ/2 - ε/μ. Without it they do not underflow:
    Φ(a) = exp(-a²/2) erfcx(-a/√2) / 2, and e^ε Φ(b) is the same with b = -μ/2 - ε/μ in erfcx, for
    b² = a² + 2ε.
    """
    a = mu / 2 - epsilon / mu
    x, step = -a / math.sqrt(2), mu / math.sqrt(2)
    if step > _SMALL_STEP:
        rest = erfcx(x) - erfcx(x + step)
    else:  # a difference would cancel; the tangent at x is below the convex curve
        rest = step * (2 / math.sqrt(math.pi) - 2 * x * erfcx(x))
    return -(a**2) / 2 + math.log(rest / 2)


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

    Raises
    ------
    UserError
        If features are not a finite matrix, or for an invalid sigma.
    """
    features = checked_features(features)
    if not 0 < sigma < math.inf:
        raise UserError(f"the noise's standard deviation is {sigma}; it must be positive")
    noisy = np.empty(features.shape, dtype=np.float32)
    for rows in blocks(len(features), max(1, _BLOCK_NUMBERS // max(1, features.shape[1]))):
        units = directions(features[rows])
        lengths = np.linalg.norm(units, axis=1, keepdims=True)
        np.divide(units, lengths, out=units, where=lengths > 0)
        raw = _raw(units.size + units.size % 2, entropy)
        noisy[rows] = units + sigma * gaussians(raw)[: units.size].reshape(units.shape)
    return noisy


def randomised_labels(
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

    Raises
    ------
    UserError
        For invalid labels, K < 1, or an invalid ε.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon is {epsilon}; it must be positive and finite")
    given = checked_classes(labels, num_classes)
    others = num_classes - 1
    # Rounding to multiples of 2^-53 can only increase the probability of a change, even for
    # large ε.
    change = others / (math.exp(min(epsilon, 700)) + others)
    chance, which = _raw(2 * len(given), entropy).reshape(2, -1)
    moved = (given + 1 + (which % max(1, others)).astype(np.int64)) % num_classes
    return np.where((given != UNLABELED) & (uniforms(chance) < change), moved, given)


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
