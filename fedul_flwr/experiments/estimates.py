"""Means over seeds, their intervals, and the paired t-test that the FedUL paper uses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t
from scipy.stats import ttest_rel

LEVEL = 0.05
"""Significance level of the test; confidence intervals have the level one minus it."""
FEWEST_SEEDS = 3
"""Seeds that two runs need in common before any is marked as best."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a metric over ``count`` runs, its sample standard deviation (n - 1), and half of
    its 95 % confidence interval. What is not known is None, and the count 0, as of a paper.
    """

    mean: float | None = None
    std: float | None = None
    count: int = 0
    half_width: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate from the values of single runs.

        The interval is that of Student's t: its half is t·s/√n with the 0.975 quantile t of n − 1
        degrees of freedom and the sample standard deviation s of the n values.
        """
        count = len(values)
        if count < 2:
            return cls(values[0], count=1) if values else cls()
        std = stdev(values)
        half = float(student_t.ppf(1 - LEVEL / 2, count - 1)) * std / math.sqrt(count)
        return cls(fmean(values), std, count, half)

    def text(self, digits: int) -> str:
        """``2.98 ± 2.14 (1.72), 5 seeds``, without the parts that are not known."""
        if self.mean is None:
            return "–"
        half = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        std = "" if self.std is None else f" ({self.std:.{digits}f})"
        count = f", {self.count} seed{'s' if self.count > 1 else ''}" if self.count else ""
        return f"{self.mean:.{digits}f}{half}{std}{count}"


@dataclass(frozen=True)
class Ranking:
    """The errors of one run, compared with the run of the lowest mean.

    Attributes
    ----------
    error : mean test error in percent over ``seeds``.
    best : whether the mean is the lowest; of equal means the first is the best.
    pairs : the seeds that the best run has, too.
    p_value : of the test against the best over ``pairs``; None for the best, and below two pairs.
    marked : whether the run is the best, or the test does not tell it apart from the best; never
        with fewer than :data:`FEWEST_SEEDS` pairs.
    """

    error: Estimate
    seeds: tuple[int, ...]
    best: bool
    pairs: tuple[int, ...]
    p_value: float | None
    marked: bool


def rank(errors: Mapping[str, Mapping[int, float]]) -> dict[str, Ranking]:
    """Compare runs by their test errors (percent) by seed.

    Runs need not have the same seeds; each is tested over those that it shares with the best.
    """
    estimates = {name: Estimate.of(list(by_seed.values())) for name, by_seed in errors.items()}
    means = {name: error.mean for name, error in estimates.items() if error.mean is not None}
    best = min(means, key=means.__getitem__, default=None)
    ranked: dict[str, Ranking] = {}
    for name, by_seed in errors.items():
        pairs = tuple(seed for seed in by_seed if best is not None and seed in errors[best])
        p_value = None
        if best is not None and name != best and len(pairs) > 1:
            p_value = paired_p_value(
                [by_seed[seed] for seed in pairs], [errors[best][seed] for seed in pairs]
            )
        marked = p_value is not None and len(pairs) >= FEWEST_SEEDS and p_value >= LEVEL
        ranked[name] = Ranking(
            estimates[name], tuple(by_seed), name == best, pairs, p_value, marked
        )
    rivals = (ranking for ranking in ranked.values() if not ranking.best)
    if best is not None and any(len(rival.pairs) >= FEWEST_SEEDS for rival in rivals):
        ranked[best] = replace(ranked[best], marked=True)
    return ranked


def stack_curves(
    series: Iterable[Mapping[int, float]],
) -> tuple[list[int], NDArray[np.float64]]:
    """The rounds that all runs measured, and the errors (runs x rounds), from those by round.

    Runs without any error are left out.

    Examples
    --------
    >>> rounds, errors = stack_curves([{1: 50.0, 2: 40.0}, {1: 30.0, 2: 20.0, 3: 10.0}])
    >>> rounds, errors.tolist()
    ([1, 2], [[50.0, 40.0], [30.0, 20.0]])
    """
    measured = [curve for curve in series if curve]
    rounds = sorted(set.intersection(*map(set, measured))) if measured else []
    return rounds, np.array([[curve[step] for step in rounds] for curve in measured])


def paired_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test on at least two pairs (``scipy.stats.ttest_rel``).

    If all differences are equal, the statistic is 0/0 or infinite. The p-value is then its limit:
    1 if the differences are 0, and 0 otherwise.
    """
    differences = np.subtract(first, second)
    if np.ptp(differences) == 0:
        return 1.0 if differences[0] == 0 else 0.0
    with warnings.catch_warnings():
        # If differences are equal up to rounding, SciPy warns; its tiny value is right.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_rel(first, second).pvalue)
