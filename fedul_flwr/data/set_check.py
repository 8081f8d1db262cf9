"""A client's check of its own unlabeled sets: whether they can be used.

The result has only counts, rank and a condition number, but no priors and no points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedul_flwr.config.base import SUM_TOLERANCE
from fedul_flwr.data.types import Floats, Ints

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
    Theorem 4 then does not hold for this client alone, but the federation can still learn.
    """
    num_sets, num_classes = priors.shape
    class_names = class_names or [str(k) for k in range(num_classes)]
    least = num_classes if min_sets is None else min_sets
    if tolerances is None:
        tolerances = np.full(num_sets, SUM_TOLERANCE)
    at, reason, details, code = _refusal(priors, set_sizes, least, tolerances)
    condition, rank = np.inf, 0
    if not reason:
        singular = np.linalg.svd(priors, compute_uv=False)
        rank = int((singular > singular[0] * max(priors.shape) * np.finfo(np.float64).eps).sum())
        if rank == num_classes:
            condition = float(singular[0] / singular[-1])
    warnings: list[str] = []
    if not reason and rank < num_classes:
        if strict_rank:
            reason = f"its priors have rank {rank}, below {num_classes} classes"
            code = "priors-rank"
        else:
            absent = [class_names[int(k)] for k in np.flatnonzero(priors.sum(axis=0) == 0)]
            named = f" (absent: {', '.join(absent)})" if absent else ""
            warnings.append(
                f"class priors have rank {rank} of {num_classes}{named}: "
                "the guarantee of Theorem 4 does not hold for this client alone"
            )
    elif not reason and condition > ILL_CONDITIONED:
        warnings.append(
            f"class priors are ill-conditioned ({condition:.3g}): "
            "sets that differ more in their classes would help"
        )
    num_points = int(set_sizes.sum())
    check = SetCheck(reason, num_sets, num_points, condition, tuple(warnings), code, rank)
    return replace(check, at=at, details=details)


def check_counts(
    check: SetCheck, priors: Floats, set_sizes: Ints, certain: bool, bag_size: int = 0
) -> SetCheck:
    """``check``, or a refusal if it is accepted and the class counts of a set are not exact."""
    if not check.accepted:
        return check
    counts = priors * set_sizes[:, None]
    apart = np.abs(counts - np.rint(counts)).max(axis=1) > COUNT_TOLERANCE
    apart |= np.rint(counts).sum(axis=1) != set_sizes
    cut = set_sizes > bag_size if bag_size else np.zeros(len(set_sizes), dtype=bool)
    if not certain:
        text = "its class shares are uncertain, and exact counts are needed"
        return replace(check, reason=text, code="class-priors-wrong")
    wrong, subject, kind = apart, "the class shares of set", "class-priors-wrong"
    why = "times its points are no whole numbers, and exact counts are needed"
    if cut.any():
        wrong, subject, kind = cut, "set", "setting-unfit-for-data"
        why = (
            f"is larger than fedllp.bag-size = {bag_size}, and parts of a set have no exact counts"
        )
    if not wrong.any():
        return check
    m = int(np.argmax(wrong))
    return replace(check, reason=f"{subject} '{m}' {why}", code=kind, at=m)


def _refusal(
    priors: Floats, set_sizes: Ints, min_sets: int, tolerances: Floats
) -> tuple[int | None, str, str, str]:
    """The refused set, why, what only the client may read of it, and the error's code."""
    wrong = "class-priors-wrong"
    for m, (row, size) in enumerate(zip(priors, set_sizes, strict=True)):
        if size == 0:  # first, because the realized priors of an empty set are zero
            return m, f"set '{m}' is empty", "", "points-missing"
        if not np.isfinite(row).all() or (row < 0).any():
            return m, f"set '{m}' has a negative or non-finite class prior", "", wrong
        if abs(row.sum() - 1) > tolerances[m]:
            sums = f": they sum to {row.sum():.6g}, and rounding explains {tolerances[m]:.2g}"
            return m, f"the class priors of set '{m}' do not sum to 1", sums, wrong
    num_sets, num_classes = priors.shape
    if num_sets >= min_sets:
        return None, "", "", ""
    if min_sets < num_classes:
        reason = "it has one set, and the set of a point tells nothing if there is one"
    else:
        reason = f"it has {num_sets} sets, fewer than the {num_classes} classes"
    return None, reason, "", "too-few-sets"


def identifiable_directions(clients: Sequence[Floats]) -> int:
    """How many of the K - 1 ratios of class posteriors the clients' sets determine together.

    A client's surrogate posteriors q at a point are Pi_c g up to a factor, g_k = eta_k / pi_k. They
    determine what is left of Pi_c g without its component along q: M_c - 1 linear equations for g.
    The posteriors are determined if all clients' equations have rank K - 1. That of the stacked
    Pi alone is not enough: K clients with one set each have K equations too few. The rank is the
    same for almost all g, so it is computed at one, which is fixed.

    Parameters
    ----------
    clients : Pi_c ``(M_c, K)`` of every client.

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
