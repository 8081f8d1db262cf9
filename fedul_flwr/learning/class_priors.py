"""Class priors at test time: changed, estimated, averaged; free of Flower.

A posterior holds for the class priors pi that it was learned under. Where classes are as frequent
as pi' and look as before (p(x | y) stays), Bayes' rule gives the posterior under pi' without
training again, and pi' itself can be found from unlabeled points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedul_flwr.data.set_check import SUM_TOLERANCE
from fedul_flwr.data.types import Floats, Ints

FLOOR = 1e-3
"""Least class prior of an estimate, as a share of the uniform prior 1/K: a class that was not seen
may yet come, and the transition divides by pi."""


def uniform_prior(num_classes: int) -> Floats:
    """``(K,)``, all classes equally frequent."""
    return np.full(num_classes, 1 / num_classes)


def checked_prior(values: ArrayLike) -> Floats:
    """Class priors ``(K,)`` divided by their sum.

    Raises
    ------
    ValueError
        An entry not between 0 and 1 (both excluded), or a sum further from 1 than 1e-4; the
        message is the rule that is broken.
    """
    prior = np.asarray(values, dtype=np.float64)
    if prior.ndim != 1 or not ((prior > 0) & (prior < 1)).all():
        raise ValueError("needs every class prior between 0 and 1, both excluded")
    if abs(prior.sum() - 1) > SUM_TOLERANCE:
        raise ValueError("must be class priors that sum to 1")
    return _normalised(prior)


def parse_prior(text: str, words: Sequence[str] = ()) -> list[float]:
    """Class priors written as K numbers separated by commas, as they are.

    Parameters
    ----------
    words : what may stand there instead of numbers, for the message.

    Raises
    ------
    ValueError
        The rule of :func:`checked_prior` that is broken, or that these are no numbers.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        allowed = "".join(f"{word!r}, " for word in words).removesuffix(", ")
        either = f"{allowed} or " if allowed else ""
        raise ValueError(f"must be {either}numbers separated by commas") from None
    checked_prior(numbers)
    return numbers


def floored(prior: Floats) -> Floats:
    """Class priors ``(K,)`` with no entry below :data:`FLOOR` / K, divided by their sum."""
    return _normalised(np.maximum(_normalised(prior), FLOOR / len(prior)))


def class_masses(priors: Floats, set_sizes: Ints) -> Floats:
    """Expected points of every class in one client's sets, sum over m of n_m Pi_m.

    Parameters
    ----------
    priors : ``(M, K)``, Pi, rows sum to 1.
    set_sizes : ``(M,)``, n_m.

    Returns
    -------
    ``(K,)``, which sum to the client's number of points.
    """
    return np.asarray(set_sizes @ priors, dtype=np.float64)


def mean_prior(masses: Iterable[ArrayLike]) -> Floats:
    """Mean of all clients' class priors weighted by set sizes, floored (:func:`floored`).

    Parameters
    ----------
    masses : ``(K,)`` of every client, from :func:`class_masses`.

    Raises
    ------
    ValueError
        No client, entries that are negative or not finite, or no point at all.
    """
    total = np.sum([np.asarray(mass, dtype=np.float64) for mass in masses], axis=0)
    if total.ndim != 1 or not np.isfinite(total).all() or (total < 0).any() or not total.any():
        raise ValueError("class masses must be finite, not negative and not all zero")
    return floored(total)


def reweigh(posterior: Floats, trained: ArrayLike, wanted: ArrayLike) -> Floats:
    """Posterior under other class priors: p'(k | x) ∝ p(k | x) · pi'_k / pi_k.

    Parameters
    ----------
    posterior : ``(n, K)``, p(k | x) under the priors ``trained``.
    trained, wanted : ``(K,)``, pi and pi', all positive.

    Returns
    -------
    ``(n, K)``, rows sum to 1.

    Raises
    ------
    ValueError
        Priors that are none, or a posterior of another width or without a positive entry in a row.
    """
    ratios = _per_prior(posterior, trained)
    prior = checked_prior(wanted)
    if len(prior) != ratios.shape[1]:
        raise ValueError(f"has {len(prior)} entries; there are {ratios.shape[1]} classes")
    return _normalised(ratios * prior)


def estimate_prior(
    posterior: Floats,
    trained: ArrayLike,
    *,
    pseudo_points: float = 1.0,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> Floats:
    """Class priors of the points that ``posterior`` is about, by expectation maximisation.

    Saerens, Latinne & Decaestecker, *Adjusting the outputs of a classifier to new a priori
    probabilities*, Neural Computation 14(1), 2002, eq. 2.9: re-weigh the posterior for the priors
    at hand, take its mean over the points for the next ones, begin with ``trained``. No step
    lowers the likelihood of the points, which is concave in the priors. The estimate is as good as
    the posterior is calibrated.

    From few points the most likely priors exclude classes too readily, so a few more points are
    imagined that are spread as in training (a Dirichlet prior; the likelihood is then the
    penalised one). n points outweigh them as n grows.

    Parameters
    ----------
    posterior : ``(n, K)``, p(k | x) under the priors ``trained``, of n unlabeled points.
    trained : ``(K,)``, pi, all positive.
    pseudo_points : imagined points per class; 0 is the paper's estimate.
    tolerance : ends when no entry moves further.
    max_iterations : ends at the latest.

    Returns
    -------
    ``(K,)``, floored (:func:`floored`).

    Raises
    ------
    ValueError
        No point, or as for :func:`reweigh`.
    """
    ratios = _per_prior(posterior, trained)
    if len(ratios) == 0:
        raise ValueError("needs one point or more")
    prior = checked_prior(trained)
    imagined = pseudo_points * len(prior) * prior
    for _ in range(max_iterations):
        before = prior
        prior = _normalised(_normalised(ratios * prior).sum(axis=0) + imagined)
        if np.abs(prior - before).max() <= tolerance:
            break
    return floored(prior)


def _per_prior(posterior: Floats, trained: ArrayLike) -> Floats:
    """p(k | x) / pi_k, which is p(x | k) up to a factor per point."""
    prior = checked_prior(trained)
    if posterior.ndim != 2 or posterior.shape[1] != len(prior):
        raise ValueError(f"a posterior {posterior.shape} does not go with {len(prior)} classes")
    if not np.isfinite(posterior).all() or (posterior < 0).any() or not posterior.any(axis=1).all():
        raise ValueError("a posterior must be finite, not negative, and not zero for all classes")
    return np.asarray(posterior / prior, dtype=np.float64)


def _normalised(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True), dtype=np.float64)
