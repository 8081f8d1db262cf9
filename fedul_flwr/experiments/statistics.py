"""Means over seeds with their intervals, mean ranks, and tests of runs against the best of them.

All take errors by seed: a table with a row for what is compared and a column for each seed, NaN
where a seed was not run. Paired t-tests as in the FedUL paper; Demšar, Statistical comparisons of
classifiers over multiple data sets, JMLR 7, 2006, section 3.2.2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import studentized_range, ttest_rel
from scipy.stats import t as student_t

LEVEL = 0.05
"""Significance level of the tests; confidence intervals have the level one minus it."""
FEWEST_SEEDS = 3
"""Seeds that two runs need in common before any is marked as best."""


class Estimate(NamedTuple):
    """The mean of a metric over so many ``seeds``, its sample standard deviation (n - 1), and half
    of its 95 % confidence interval. What is not known is NaN, and the seeds 0, as of a paper.
    """

    mean: float = math.nan
    std: float = math.nan
    half_width: float = math.nan
    seeds: int = 0

    def text(self, digits: int) -> str:
        """``2.98 ± 2.14 (1.72), 5 seeds``, without the parts that are not known."""
        if math.isnan(self.mean):
            return "–"
        half = "" if math.isnan(self.half_width) else f" ± {self.half_width:.{digits}f}"
        count = f", {self.seeds} seed{'s' * (self.seeds > 1)}" if self.seeds else ""
        return f"{self.mean:.{digits}f}{half}{deviation(self.std, digits)}{count}"


def deviation(std: float, digits: int) -> str:
    """`` (1.72)``, nothing for NaN."""
    return "" if math.isnan(std) else f" ({std:.{digits}f})"


def estimates(by_seed: pd.DataFrame) -> pd.DataFrame:
    """The columns of :class:`Estimate` for each row.

    The interval is that of Student's t: its half is t·s/√n with the 0.975 quantile t of n − 1
    degrees of freedom and the sample standard deviation s of the n values.
    """
    count, std = by_seed.count(axis="columns"), by_seed.std(axis="columns")
    quantile = student_t.ppf(1 - LEVEL / 2, count - 1)
    return pd.DataFrame(
        {
            "mean": by_seed.mean(axis="columns"),
            "std": std,
            "half_width": quantile * std / np.sqrt(count),
            "seeds": count,
        }
    )


def rank(by_seed: pd.DataFrame) -> pd.DataFrame:
    """Compare runs by their errors, each over the seeds that it shares with the best.

    Returns
    -------
    DataFrame
        :func:`estimates`, and ``best``: whether the mean is the lowest, of equal ones the first;
        ``pairs``: number of seeds that the best run has, too; ``p_value`` of the test against the
        best over them, NaN for the best and below two pairs; ``marked``: whether the run is the
        best, or the test does not tell it apart from the best, never with fewer than
        :data:`FEWEST_SEEDS` pairs.
    """
    ranked, errors = estimates(by_seed), by_seed.to_numpy(dtype=float)
    is_best = np.arange(len(ranked)) == ranked["mean"].fillna(math.inf).argmin()
    is_best &= ranked["mean"].notna().to_numpy()
    best = errors[is_best].sum(axis=0) if is_best.any() else np.full(errors.shape[1], math.nan)
    shared = np.isfinite(errors - best)
    pairs = shared.sum(axis=1)
    p_values = [
        paired_p_value(of[both], best[both]) if both.sum() > 1 and not first else math.nan
        for of, both, first in zip(errors, shared, is_best, strict=True)
    ]
    enough = ~is_best & (pairs >= FEWEST_SEEDS)
    marked = (enough & (np.array(p_values) >= LEVEL)) | (is_best & enough.any())
    return ranked.assign(best=is_best, pairs=pairs, p_value=p_values, marked=marked)


def common_rounds(curves: Iterable[Mapping[int, float]]) -> pd.DataFrame:
    """The rounds that all runs measured, and the errors (rounds x runs), from those by round.

    Runs without any error are left out.

    Examples
    --------
    >>> common_rounds([{1: 50.0, 2: 40.0}, {}, {1: 30.0, 2: 20.0, 3: 10.0}]).to_dict("index")
    {1: {0: 50.0, 1: 30.0}, 2: {0: 40.0, 1: 20.0}}
    """
    return pd.DataFrame(dict(enumerate(map(pd.Series, filter(None, curves))))).dropna()


def paired_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of the paired t-test on at least two pairs (``scipy.stats.ttest_rel``).

    If all differences are equal, the statistic is 0/0 or infinite. The p-value is then its limit:
    1 if the differences are 0, and 0 otherwise.
    """
    differences = np.subtract(first, second)
    if np.ptp(differences) == 0:
        return float(not differences.any())
    with warnings.catch_warnings():
        # If differences are equal up to rounding, SciPy warns; its tiny value is right.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_rel(first, second).pvalue)


def mean_ranks(errors: pd.DataFrame) -> pd.Series:
    """Mean rank of each row over the columns that all rows have; the lowest error has rank 1.

    Rows of equal error share the mean of their ranks. Without such a column there are no ranks.
    """
    complete = errors.dropna(axis="columns").round(9)  # equal means may differ in their last bits
    return complete.rank().mean(axis="columns") if complete.size else pd.Series(dtype=float)


def critical_difference(num_rows: int, num_columns: int, level: float = LEVEL) -> float:
    """The least difference of two mean ranks with which Nemenyi's test tells two rows apart.

    It is q·√(k(k + 1)/6N) for k rows and N columns. q is the quantile at 1 − ``level`` of the
    studentized range of k groups with infinite degrees of freedom, divided by √2.

    Parameters
    ----------
    num_rows : k, at least 2.
    num_columns : N, at least 1. The test takes them as independent of each other.
    level : of all pairs together, between 0 and 1.

    Examples
    --------
    Demšar's example has four classifiers on 14 data sets:

    >>> round(critical_difference(num_rows=4, num_columns=14), 2)
    1.25
    """
    q = float(studentized_range.ppf(1 - level, num_rows, np.inf)) / math.sqrt(2)
    return q * math.sqrt(num_rows * (num_rows + 1) / (6 * num_columns))


def complete_means(
    by_seed: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Means over seeds by row and column, from errors by (column, row) and seed.

    A mean is NaN where the row lacks a seed that another row of the column has.
    """
    seeds = by_seed.notna().groupby("column").any().sum(axis="columns")
    of_cell = seeds.reindex(by_seed.index.get_level_values("column")).to_numpy()
    means = by_seed.mean(axis="columns").where(by_seed.count(axis="columns") == of_cell)
    return means.unstack("column").reindex(index=[*rows], columns=[*columns])


def rank_table(errors: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rows with their mean ranks, the best first, and notes with the critical difference."""
    columns, ranks = errors.dropna(axis="columns").columns, mean_ranks(errors)
    shown = pd.DataFrame(columns=["row", "mean rank"])
    if len(errors) < 2 or ranks.empty:
        return shown, ["No ranks: they need two rows, and a column with a test error of every row."]
    ordered = ranks.sort_values(kind="stable")
    shown["row"], shown["mean rank"] = ordered.index, [f"{rank:.2f}" for rank in ordered]
    least = critical_difference(len(errors), len(columns))
    return shown, [
        f"Ranks of mean test errors over columns: {', '.join(columns)}.",
        f"Mean ranks that differ by less than {least:.2f} are not told apart at the "
        f"{LEVEL * 100:.0f} % level (Nemenyi's test).",
    ]
