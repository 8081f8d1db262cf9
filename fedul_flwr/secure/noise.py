"""Gaussian noise for differential privacy: how it is drawn, and how much of it is enough."""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.errors import UserError
from fedul_flwr.secure.session import Entropy, fresh


def uniforms(raw: NDArray[np.uint64]) -> Floats:
    """Uniform numbers in [0, 1), multiples of 2^-53, one from each of ``raw``; same shape."""
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


def gaussians(raw: NDArray[np.uint64]) -> Floats:
    """Unit Gaussian numbers, one for each of ``raw`` (Box and Muller 1958).

    Parameters
    ----------
    raw : ``(n,)``, random bits; n must be even, as each pair gives two numbers.

    Returns
    -------
    float64 ``(n,)``, at most √(106 log 2) = 8.6 in absolute value.
    """
    uniform = uniforms(raw)
    radius = np.sqrt(-2 * np.log1p(-uniform[0::2]))
    angle = 2 * np.pi * uniform[1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()


def fresh_gaussians(count: int, entropy: Entropy = os.urandom) -> Floats:
    """``count`` unit Gaussian numbers for noise that nobody may predict.

    From AES-256 under a key of the operating system: from no seed, as the run's would reveal it,
    and from no generator whose state follows from what it has drawn.
    """
    even = count + count % 2
    return gaussians(fresh(8 * even, entropy).view(np.uint64))[:count]


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

    Examples
    --------
    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 2)
    3.73
    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0, releases=4), 2)
    7.46
    """
    if not (
        0 < epsilon < math.inf and 0 < delta < 1 and 0 < sensitivity < math.inf and releases >= 1
    ):
        raise UserError(
            f"epsilon {epsilon}, delta {delta}, sensitivity {sensitivity} and {releases} releases: "
            "all must be above 0 and finite, and delta below 1",
            "argument-not-allowed",
        )
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

    Examples
    --------
    >>> sigma = gaussian_sigma(epsilon=2.0, delta=1e-5, sensitivity=1.0)
    >>> round(gaussian_epsilon(1 / sigma, delta=1e-5), 6)
    2.0
    """
    from scipy.special import ndtr  # it takes a third of a second, and a list of methods needs none

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


_SMALL_STEP = 1e-6


def _log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε), which increases with μ.

    Both terms share the factor exp(-a²/2), a = μ/2 - ε/μ. Without it they do not underflow:
    Φ(a) = exp(-a²/2) erfcx(-a/√2) / 2, and e^ε Φ(b) is the same with b = -μ/2 - ε/μ in erfcx, for
    b² = a² + 2ε.
    """
    from scipy.special import erfcx

    a = mu / 2 - epsilon / mu
    x, step = -a / math.sqrt(2), mu / math.sqrt(2)
    if step > _SMALL_STEP:
        rest = erfcx(x) - erfcx(x + step)
    else:  # a difference would cancel; the tangent at x is below the convex curve
        rest = step * (2 / math.sqrt(math.pi) - 2 * x * erfcx(x))
    return -(a**2) / 2 + math.log(rest / 2)
