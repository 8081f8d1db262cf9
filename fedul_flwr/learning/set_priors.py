"""Class priors of unlabeled sets, estimated from a class model's posteriors; free of Flower.

A point of set m has density Σ_k Pi_mk p(x | k), and p(x | k) is the model's posterior eta_k divided
by the class prior pi_k of its training, up to a factor that does not depend on k. With the model
fixed, this gives the likelihood of Pi. Expectation maximization (Saerens, Latinne & Decaestecker
2002) climbs it in closed form; a Dirichlet distribution for what is told of Pi adds to the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedul_flwr.data.prior_uncertainty import Dirichlet
from fedul_flwr.data.types import Bools, Floats, Ints

LEVEL = 0.01
"""Probability with which a client whose priors are all right is told that some do not fit."""
POOR_FIT = 10.0
"""Inflation of the statistics above which a client is told that its priors fit badly as a whole."""
_MAX_STEPS = 1000
_GAIN = 0.01
"""Log-likelihood that an estimate may lack: of a statistic of some units, a hundredth of one."""


def set_likelihoods(posterior: Floats, test_prior: Floats | None) -> Floats:
    """p(x | k) up to a factor for each point, ``(n, K)``.

    Parameters
    ----------
    posterior : ``(n, K)``, eta, rows sum to 1.
    test_prior : ``(K,)``, pi, all positive; ``None`` is uniform.

    Examples
    --------
    >>> set_likelihoods(np.array([[0.5, 0.5]]), np.array([0.25, 0.75])).round(4).tolist()
    [[2.0, 0.6667]]
    """
    return posterior if test_prior is None else np.asarray(posterior / test_prior)


def learn_priors(likelihoods: Floats, sets: Ints, priors: Floats, stated: Dirichlet) -> Floats:
    """One step of expectation maximization for every set's class priors.

    With r_k(x) ∝ Pi_mk p(x | k), the share of a point that belongs to class k, and s_m, t_m the
    concentration and the mean of what is told, the next row is

        Pi_m ← (Σ_x r(x) + s_m t_m) / (n_m + s_m).

    No step lowers the log-likelihood of the set's points minus s_m KL(t_m ‖ Pi_m), the log-density
    of the Dirichlet distribution over the logits of Pi_m up to a constant. Rows that are told
    exactly stay as they are told, bit for bit.

    Parameters
    ----------
    likelihoods : ``(n, K)``, from :func:`set_likelihoods`.
    sets : ``(n,)``, the set ``0..M-1`` of every point.
    priors : ``(M, K)``, current class priors.
    stated : means ``(M, K)`` and concentrations ``(M,)``.

    Returns
    -------
    ``(M, K)``, rows sum to 1.

    Examples
    --------
    A model that is sure of three points of class 0 and one of class 1, and a set of unknown priors:

    >>> likelihoods = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> half = np.array([[0.5, 0.5]])
    >>> told = Dirichlet(half, np.array([0.0]))
    >>> learn_priors(likelihoods, np.array([0, 0, 0, 0]), half, told).tolist()
    [[0.75, 0.25]]
    """
    exact = np.isinf(stated.concentrations)
    shares = priors[sets] * likelihoods
    totals = shares.sum(axis=1, keepdims=True)
    # A point that its set's classes cannot explain belongs to none of them in particular.
    shares = np.where(totals > 0, shares / np.where(totals > 0, totals, 1), priors[sets])
    cells = sets[:, None] * priors.shape[1] + np.arange(priors.shape[1])
    sums = np.bincount(cells.ravel(), shares.ravel(), priors.size)
    counts = np.asarray(sums, dtype=np.float64).reshape(priors.shape)
    counts = counts + stated.finite_concentrations[:, None] * stated.means
    # A set without points and without a told row keeps its priors.
    counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, priors)
    learned = counts / counts.sum(axis=1, keepdims=True)
    return np.where(exact[:, None], stated.means, learned)


@dataclass(frozen=True)
class PriorFit:
    """How well the class priors told of M sets fit a model's posteriors on their points.

    Attributes
    ----------
    shares : ``(M, K)``, class priors estimated from the posteriors alone.
    p_values : ``(M,)``, probability of estimates that far from what is told, if it is right.
    misfits : bool ``(M,)``, p-value below :data:`LEVEL` / M.
    inflation : median of the statistics in units of χ²'s, at least 1; large if the model or most
        of the priors are bad.
    """

    shares: Floats
    p_values: Floats
    misfits: Bools
    inflation: float


def check_fit(likelihoods: Floats, sets: Ints, stated: Dirichlet) -> PriorFit:
    """Likelihood-ratio tests of what is told of each set's class priors.

    The statistic is twice the difference between the largest log-likelihood of the set's points and
    the largest one under what is told (with the penalty s_m KL(t_m ‖ Pi_m) of an uncertain row;
    an exact row is itself). It grows with n_m for a wrong row, and for a right one has about a χ²
    distribution with K − 1 degrees of freedom. As a model is not perfect, statistics are divided
    by their median over the sets in units of χ²'s, if that is above 1 (genomic control, Devlin &
    Roeder 1999): a set misfits if it stands out among its client's sets. So at least three sets are
    needed, and of most of them the priors must be right.

    Parameters
    ----------
    likelihoods, sets, stated : as for :func:`learn_priors`.

    Examples
    --------
    Of three sets with as many points of both classes, the last one is told otherwise:

    >>> likelihoods, sets = np.tile(np.eye(2), (150, 1)), np.repeat([0, 1, 2], 100)
    >>> told = Dirichlet.exact(np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]]))
    >>> fit = check_fit(likelihoods, sets, told)
    >>> fit.misfits.tolist(), fit.shares[2].round(4).tolist()
    ([False, False, True], [0.5, 0.5])
    """
    from scipy.special import chdtrc, chdtri  # scipy.stats takes a client a second to load

    num_sets, num_classes = stated.means.shape
    free = Dirichlet(stated.means, np.zeros(num_sets))
    start = np.full(stated.means.shape, 1 / num_classes)
    shares = _converged(likelihoods, sets, start, free)
    bound = _converged(likelihoods, sets, (stated.means + start) / 2, stated)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(stated.means > 0, stated.means * np.log(stated.means / bound), 0)
    penalty = stated.finite_concentrations * divergence.sum(axis=1)
    gains = log_likelihoods(likelihoods, sets, shares) - log_likelihoods(likelihoods, sets, bound)
    statistics = np.maximum(2 * (gains + penalty), 0)
    freedom = num_classes - 1
    inflation = max(1.0, float(np.median(statistics)) / float(chdtri(freedom, 0.5)))
    p_values = chdtrc(freedom, statistics / inflation)
    return PriorFit(shares, p_values, p_values < LEVEL / num_sets, inflation)


def misfits_in_words(
    fit: PriorFit, stated: Dirichlet, set_names: Sequence[str], class_names: Sequence[str]
) -> Iterator[str]:
    """Lines for the owner: every set that misfits, with the class that differs most; or that most
    sets fit badly, so that none can stand out."""
    if fit.inflation > POOR_FIT:
        yield (
            f"warning: the class priors of most sets fit the model's predictions badly (half of "
            f"the statistics are {fit.inflation:.0f} times what chance explains, or more): either "
            "the priors are wrong, or the model is"
        )
    for m in map(int, np.flatnonzero(fit.misfits)):
        worst = int(np.abs(fit.shares[m] - stated.means[m]).argmax())
        yield (
            f"warning: the class priors of set {set_names[m]!r} do not fit the model's predictions "
            f"(p = {fit.p_values[m]:.1g}): of class {class_names[worst]!r} it finds "
            f"{fit.shares[m, worst]:.3f}, told was {stated.means[m, worst]:.3f}"
        )


def log_likelihoods(likelihoods: Floats, sets: Ints, priors: Floats) -> Floats:
    """``(M,)``: Σ over the points of set m of log Σ_k Pi_mk p(x | k).

    Examples
    --------
    >>> half = np.array([[0.5, 0.5]])
    >>> log_likelihoods(np.eye(2), np.array([0, 0]), half).round(4).tolist()
    [-1.3863]
    """
    # A class that is told to be absent, and a model that is sure of it, would make one point
    # decide: no point counts for more than a model that is wrong once in a million.
    density = np.maximum((priors[sets] * likelihoods).sum(axis=1), 1e-6)
    sums = np.bincount(sets, np.log(density), minlength=len(priors))
    return np.asarray(sums, dtype=np.float64)


def _converged(likelihoods: Floats, sets: Ints, priors: Floats, stated: Dirichlet) -> Floats:
    """Repeat :func:`learn_priors` until no row can gain more than :data:`_GAIN`.

    The penalized log-likelihood of a row is concave, so its largest value is at most
    max_k g_k − Σ_k Pi_mk g_k above that of Pi_m, where g is its gradient (the gap of Frank & Wolfe
    1956). A step multiplies Pi_mk by g_k / (n_m + s_m), so that the gap is seen from the step.
    """
    worth = np.bincount(sets, minlength=len(priors)) + stated.finite_concentrations
    for _ in range(_MAX_STEPS):
        before, priors = priors, learn_priors(likelihoods, sets, priors, stated)
        growth = np.divide(priors, before, out=np.zeros_like(priors), where=before > 0)
        if (worth * (growth.max(axis=1) - 1) < _GAIN).all():
            break
    return priors
