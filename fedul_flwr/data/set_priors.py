"""Class priors of unlabeled sets: how certain they are, whether they can be used, and estimates.

A client checks its own sets (:func:`check_sets`); the result has only counts, rank and a condition
number, but no priors and no points.

A point of set m has density Σ_k Pi_mk p(x | k), and p(x | k) is the model's posterior eta_k divided
by the class prior pi_k of its training, up to a factor that does not depend on k. With the model
fixed, this gives the likelihood of Pi. Expectation maximization (Saerens, Latinne & Decaestecker
2002) climbs it in closed form; a Dirichlet distribution for what is told of Pi adds to the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.config.base import SUM_TOLERANCE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

JEFFREYS = 0.5
"""Count that Jeffreys' prior adds to every class (Jeffreys 1946)."""


@dataclass(frozen=True)
class Dirichlet:
    """A Dirichlet distribution for every set's class priors.

    Attributes
    ----------
    means : float64 ``(M, K)``, rows sum to 1.
    concentrations : float64 ``(M,)``, above 0: how many labels of a set its mean is worth.
        Infinite: the mean is exact.
    """

    means: Floats
    concentrations: Floats

    @property
    def finite_concentrations(self) -> Floats:
        """``(M,)``: :attr:`concentrations`, 0 for exact rows, which no count changes."""
        return np.where(np.isinf(self.concentrations), 0.0, self.concentrations)

    @classmethod
    def exact(cls, priors: Floats) -> Self:
        """Class priors ``(M, K)`` without any uncertainty."""
        return cls(priors, np.full(len(priors), np.inf))

    @classmethod
    def from_counts(cls, counts: ArrayLike) -> Self:
        """Posterior of counts under Jeffreys' prior, Dirichlet(counts + 1/2)."""
        alpha = np.asarray(counts, dtype=np.float64) + JEFFREYS
        total = alpha.sum(axis=1)
        return cls(alpha / total[:, None], total)

    @classmethod
    def from_intervals(cls, low: Floats, high: Floats) -> Self:
        """Normalized midpoints, as uncertain as a uniform distribution over each interval.

        A row is worth as many labels as :func:`effective_labels` says of the variances of the
        uniform distributions, (high_k − low_k)² / 12, at least :data:`JEFFREYS` per class: nothing
        known is Jeffreys' prior. Equal ends everywhere in a row are exact.
        """
        middle = (low + high) / 2
        means = middle / middle.sum(axis=1, keepdims=True)
        worth = effective_labels(means, (high - low) ** 2 / 12)
        return cls(means, np.maximum(worth, JEFFREYS * means.shape[1]))

    @classmethod
    def from_noise(cls, priors: Floats, worth: float) -> Self:
        """Noisy class priors, each counted as so many labels (:func:`effective_labels`).

        A zero is a class that the noise cut off, so Jeffreys' prior is added as in
        :meth:`from_counts`. If ``worth`` is infinite there is no noise.
        """
        return cls.exact(priors) if np.isinf(worth) else cls.from_counts(worth * priors)


def effective_labels(means: Floats, variances: Floats) -> Floats:
    """How many labels of each set its class priors are worth, 0 or more, ``(M,)``.

    The effective sample size of Pearson's chi-square statistic: the expected value of
    Σ_k (estimate_k − t_k)² / t_k is (K − 1) / (s + 1) for a Dirichlet distribution with mean t and
    concentration s. Solved for s, with the K classes that can occur, t_k > 0.

    ``variances`` are the expected (estimate_k − t_k)²; all zero in a row gives infinity.

    Examples
    --------
    A share of 0.5 with a standard deviation of 0.05 is worth 99 labels:

    >>> effective_labels(np.array([[0.5, 0.5]]), np.array([[0.0025, 0.0025]])).round(4).tolist()
    [99.0]
    """
    possible = means > 0
    ratios = np.where(possible, variances / np.where(possible, means, 1), 0).sum(axis=1)
    freedom = possible.sum(axis=1) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where(ratios > 0, freedom / ratios - 1, np.inf)
    return np.asarray(np.maximum(sizes, 0), dtype=np.float64)


LEVEL = 0.01
"""Probability with which a client whose priors are all right is told that some do not fit."""
POOR_FIT = 10.0
"""Inflation of the statistics above which a client is told that its priors fit badly as a whole."""
_MAX_STEPS = 1000
_GAIN = 0.01
"""Log-likelihood that an estimate may lack: of a statistic of some units, a hundredth of one."""


def set_likelihoods(posterior: Floats, test_prior: Floats | None) -> Floats:
    """p(x | k) up to a factor for each point, ``(n, K)``."""
    return posterior if test_prior is None else np.asarray(posterior / test_prior)


def learn_priors(likelihoods: Floats, sets: Ints, priors: Floats, stated: Dirichlet) -> Floats:
    """One step of expectation maximization for every set's class priors.

    With r_k(x) ∝ Pi_mk p(x | k), the share of a point that belongs to class k, and s_m, t_m the
    concentration and the mean of what is told, the next row is

        Pi_m ← (Σ_x r(x) + s_m t_m) / (n_m + s_m).

    No step lowers the log-likelihood of the set's points minus s_m KL(t_m ‖ Pi_m), the log-density
    of the Dirichlet distribution over the logits of Pi_m up to a constant. Rows that are told
    exactly stay as they are told, bit for bit. ``sets`` has the set ``0..M-1`` of every point.

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
            "warning: the class shares of most sets fit the model's predictions badly (half of "
            f"them {fit.inflation:.0f} times as badly as by chance): either the shares are "
            "wrong, or the model is"
        )
    for m in map(int, np.flatnonzero(fit.misfits)):
        worst = int(np.abs(fit.shares[m] - stated.means[m]).argmax())
        yield (
            f"warning: the class shares of set {set_names[m]!r} do not fit the model's predictions "
            f"(p = {fit.p_values[m]:.1g} by chance): of class {class_names[worst]!r} they state "
            f"{stated.means[m, worst]:.3f}, the model predicts {fit.shares[m, worst]:.3f}"
        )


def log_likelihoods(likelihoods: Floats, sets: Ints, priors: Floats) -> Floats:
    """``(M,)``: Σ over the points of set m of log Σ_k Pi_mk p(x | k)."""
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


# A client's check of its own sets.

ILL_CONDITIONED = 1e3
"""Condition numbers of Pi above this are warned about."""

RANK_TOLERANCE = 1e-9
"""Singular values of equations between class posteriors below this are rounding errors."""

COUNT_TOLERANCE = 0.1
"""How far the class shares of a set times its points may be from whole numbers: shares with three
decimals are exact enough for 200 points, with four for 2,000."""


@dataclass(frozen=True)
class SetCheck:
    """Result of a client's check of its own sets.

    Attributes
    ----------
    reason : why the sets are refused, empty if they are accepted; a set is named by its number
        from 0, ``at``, as names of sets and ``details`` are for the client alone.
    condition_number : condition number of Pi; infinite below full column rank.
    """

    reason: str
    num_sets: int
    num_points: int
    condition_number: float
    warnings: tuple[str, ...] = ()
    code: str = ""
    rank: int = 0
    at: int | None = None
    details: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the client can take part."""
        return not self.reason

    def in_words(self, names: Sequence[object]) -> str:
        """The reason for the client, with the set's name."""
        if self.at is None:
            return self.reason
        return self.reason.replace(f"set '{self.at}'", f"set '{names[self.at]}'") + self.details


def check_sets(
    priors: Floats,
    set_sizes: Ints,
    *,
    strict_rank: bool = False,
    min_sets: int | None = None,
    class_names: Sequence[str] | None = None,
    tolerances: Floats | None = None,
) -> SetCheck:
    """Check one client's sets.

    Refused are: a row of priors with a negative or non-finite entry or a sum further from 1 than
    its tolerance, fewer sets than ``min_sets``, an empty set, and with ``strict_rank`` a Pi of
    rank below K. Without ``strict_rank`` a rank below K gives a warning with the absent classes:
    The paper's theorem 4 then does not hold for this client alone, but the federation can still
    learn.
    """
    num_sets, num_classes = priors.shape
    check = SetCheck("", num_sets, int(set_sizes.sum()), np.inf)
    least = num_classes if min_sets is None else min_sets
    if tolerances is None:
        tolerances = np.full(num_sets, SUM_TOLERANCE)
    if refusal := _refusal(priors, set_sizes, least, tolerances):
        return replace(check, **refusal)
    singular = np.linalg.svd(priors, compute_uv=False)
    rank = int((singular > singular[0] * max(priors.shape) * np.finfo(np.float64).eps).sum())
    check = replace(check, rank=rank)
    if rank < num_classes and strict_rank:
        reason = f"its sets do not tell all {num_classes} classes apart (rank {rank})"
        return replace(check, reason=reason, code="priors-rank")
    if rank < num_classes:
        names = class_names or [str(k) for k in range(num_classes)]
        absent = [names[int(k)] for k in np.flatnonzero(priors.sum(axis=0) == 0)]
        why = f"no set has a point of: {', '.join(absent)}" if absent else "their shares are alike"
        warning = (
            f"alone these sets do not tell all classes apart ({why}); with other owners' sets they "
            "may"
        )
        return replace(check, warnings=(warning,))
    condition = float(singular[0] / singular[-1])
    check = replace(check, condition_number=condition)
    if condition <= ILL_CONDITIONED:
        return check
    warning = f"{alikeness(condition)}: sets that differ more in their classes would help"
    return replace(check, warnings=(warning,))


def alikeness(condition: float) -> str:
    """The condition number of sets' class shares, in words for owners."""
    return (
        f"how alike their class shares are: {condition:.3g} (1 is as different as can be, "
        f"{ILL_CONDITIONED:,.0f} and more nearly the same)"
    )


def check_counts(
    check: SetCheck, priors: Floats, set_sizes: Ints, certain: bool, bag_size: int = 0
) -> SetCheck:
    """``check``, or a refusal if it is accepted and the class counts of a set are not exact."""
    if not check.accepted:
        return check
    if not certain:
        text = "its class shares are uncertain, and exact counts are needed"
        return replace(check, reason=text, code="class-priors-wrong")
    if bag_size and (set_sizes > bag_size).any():
        m = int(np.argmax(set_sizes > bag_size))
        why = f"larger than fedllp.bag-size = {bag_size}, and parts of a set have no exact counts"
        return replace(check, reason=f"set '{m}' is {why}", code="setting-unfit-for-data", at=m)
    counts = priors * set_sizes[:, None]
    apart = np.abs(counts - np.rint(counts)).max(axis=1) > COUNT_TOLERANCE
    apart |= np.rint(counts).sum(axis=1) != set_sizes
    if not apart.any():
        return check
    m = int(np.argmax(apart))
    why = "times its points are no whole numbers, and exact counts are needed"
    reason = f"the class shares of set '{m}' {why}"
    return replace(check, reason=reason, code="class-priors-wrong", at=m)


def _refusal(priors: Floats, set_sizes: Ints, min_sets: int, tolerances: Floats) -> dict[str, Any]:
    """Why sets are refused, with the refused set, what only the client may read, and the code."""
    for m, (row, size) in enumerate(zip(priors, set_sizes, strict=True)):
        if size == 0:  # first, because the realized priors of an empty set are zero
            return {"at": m, "reason": f"set '{m}' is empty", "code": "points-missing"}
        wrong = {"at": m, "code": "class-priors-wrong"}
        if not np.isfinite(row).all() or (row < 0).any():
            return {**wrong, "reason": f"set '{m}' has a class share that is negative or no number"}
        if abs(row.sum() - 1) > tolerances[m]:
            sums = f": they sum to {row.sum():.6g}, and rounding explains {tolerances[m]:.2g}"
            reason = f"the class shares of set '{m}' do not sum to 1"
            return {**wrong, "reason": reason, "details": sums}
    num_sets, num_classes = priors.shape
    if num_sets >= min_sets:
        return {}
    if min_sets < num_classes:
        reason = "it has one set, and the set of a point tells nothing if there is one"
    else:
        reason = f"it has {num_sets} sets, fewer than the {num_classes} classes"
    return {"reason": reason, "code": "too-few-sets"}


def identifiable_directions(clients: Sequence[Floats]) -> int:
    """How many of the K - 1 ratios of class posteriors the clients' sets determine together.

    A client's surrogate posteriors q at a point are Pi_c g up to a factor, g_k = eta_k / pi_k. They
    determine what is left of Pi_c g without its component along q: M_c - 1 linear equations for g.
    The posteriors are determined if all clients' equations have rank K - 1. That of the stacked
    Pi alone is not enough: K clients with one set each have K equations too few. The rank is the
    same for almost all g, so it is computed at one, which is fixed.

    Examples
    --------
    Two clients tell two classes apart if one of them has sets that differ:

    >>> same = np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> identifiable_directions([same, same])
    0
    >>> identifiable_directions([same, np.array([[0.75, 0.25], [0.25, 0.75]])])
    1
    """
    equations = np.concatenate([posterior_equations(priors) for priors in clients])
    # A client alone with exact zeros leaves rounding errors: not counted as equations.
    return int(np.linalg.matrix_rank(equations, tol=RANK_TOLERANCE))


def posterior_equations(priors: Floats) -> Floats:
    """``(M, K)``, what one client's sets say of g, see :func:`identifiable_directions`."""
    posterior = np.random.default_rng(0).uniform(0.5, 1.5, priors.shape[1])
    along = priors @ posterior
    return np.asarray(priors - np.outer(along, along @ priors) / (along @ along))


def directions_of_gram(gram: Floats) -> int:
    """:func:`identifiable_directions` from the sum of E^T E over clients' equations E, ``(K, K)``.

    Eigenvalues are squares of singular values: those below 10^-14 of the largest are rounding.

    Examples
    --------
    >>> some = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> equations = posterior_equations(some)
    >>> directions_of_gram(equations.T @ equations)
    1
    """
    largest = float(np.linalg.norm(gram, 2))
    tolerance = max(1e-14 * largest, RANK_TOLERANCE**2)
    return int(np.linalg.matrix_rank(gram, hermitian=True, tol=tolerance))


def stacked_rank(grams: Sequence[Floats]) -> int:
    """Rank of all clients' stacked priors, from Gram matrices Pi_c^T Pi_c, ``(K, K)`` each."""
    total = np.sum(grams, axis=0)
    return int(np.linalg.matrix_rank(total, hermitian=True))
