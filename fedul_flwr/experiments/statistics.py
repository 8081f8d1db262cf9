"""Means over seeds with their intervals, mean ranks, and tests of one method against its rivals.

Paired t-tests as in the FedUL paper; Demšar, Statistical comparisons of classifiers over multiple
data sets, JMLR 7, 2006, sections 3.1.3 and 3.2.2; Holm, A simple sequentially rejective multiple
test procedure, 1979.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import studentized_range, ttest_rel, wilcoxon
from scipy.stats import t as student_t

from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.text_tables import print_table

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


def row_errors(
    table: Table, runs: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Mean test errors (percent) of the rows that have ranks, NaN where a seed is missing.

    A seed is missing where another row has a result of it.
    """
    seeds = runs.groupby("column")["seed"].nunique()
    cells = runs.astype({"test_error": float}).groupby(["row", "column"])["test_error"]
    means, counts = cells.mean().unstack(), cells.count().unstack()
    means = means.where(counts == seeds.reindex(means.columns))
    ranked = [row for row in rows if row not in table.unranked]
    return means.reindex(index=ranked, columns=list(columns))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of tests that are made together, by Holm's method.

    Of m values in ascending order the i-th is multiplied by m + 1 − i, and is at least that before.

    Examples
    --------
    >>> holm([0.03, 0.01, 0.04])
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in adjusted]


def paired_tests(
    table: Table, named: str, runs: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """A method that the table names beforehand against each rival in each column.

    Rivals are ranked rows that are no variants of it. A line has ``column``, ``rival``,
    ``difference`` (mean test error of the rival minus that of the method over the ``seeds`` that
    both have, in percentage points; above 0 the method is better), ``p`` of the paired t-test by
    Holm over all lines, and ``result``: ``win``, ``loss``, or ``tie`` if the test does not tell
    them apart. Less than two seeds in common give no line.
    """
    no_rivals = {*table.unranked, *table.named[named], named}
    errors = runs.astype({"test_error": float}).pivot_table(
        index=["column", "row"], columns="seed", values="test_error"
    )
    lines = []
    for column, rival in product(columns, [row for row in rows if row not in no_rivals]):
        pair = [(column, rival), (column, named)]
        both = errors.loc[pair].dropna(axis="columns") if {*pair} <= {*errors.index} else errors[[]]
        if both.shape[1] > 1:
            theirs, ours = both.to_numpy()
            p_value = paired_p_value(theirs.tolist(), ours.tolist())
            lines.append((column, rival, float((theirs - ours).mean()), both.shape[1], p_value))
    tests = pd.DataFrame(lines, columns=["column", "rival", "difference", "seeds", "p"])
    tests["p"] = holm(tests["p"].tolist())
    better = np.where(tests["difference"] > 0, "win", "loss")
    tests["result"] = np.where(tests["p"] < LEVEL, better, "tie")
    return tests


def rival_lines(tests: pd.DataFrame) -> list[list[str]]:
    """For each rival: wins, ties, losses, mean difference over columns, and p of Wilcoxon's
    signed-rank test on the differences of columns, by Holm over the rivals."""
    by_rival = [(str(rival), of) for rival, of in tests.groupby("rival", sort=False)]
    p_values = holm([_signed_rank(of["difference"]) for _, of in by_rival])
    return [
        [
            rival,
            *(str(int((of["result"] == result).sum())) for result in ("win", "tie", "loss")),
            f"{of['difference'].mean():+.1f}",
            f"{p_value:.3f}",
        ]
        for (rival, of), p_value in zip(by_rival, p_values, strict=True)
    ]


RIVAL_HEAD = ("rival", "wins", "ties", "losses", "mean difference", "Wilcoxon's p")


def rival_notes(table: Table, named: str, tests: pd.DataFrame) -> list[str]:
    """What the lines of :func:`rival_lines` are, with their totals."""
    totals = tests["result"].value_counts()
    results = {"wins": "win", "ties": "tie", "losses": "loss"}
    counts = ", ".join(f"{words}: {totals.get(name, 0)}" for words, name in results.items())
    seeds = f"{tests['seeds'].min()} to {tests['seeds'].max()}"
    count = len(table.named[named])
    variants = f" and {count} variant{'s' if count > 1 else ''} of it" if count else ""
    return [
        f"{named}{variants}. Rivals: {tests['rival'].nunique()}, columns: "
        f"{tests['column'].nunique()}, comparisons: {len(tests)}; {counts}.",
        f"A win or a loss is a paired t-test over {seeds} seeds with p below {LEVEL}, by Holm over "
        "all comparisons. Differences are percentage points that a rival errs more. Wilcoxon's "
        "signed-rank test is over the columns, by Holm over the rivals.",
    ]


def _signed_rank(differences: pd.Series) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; 1 without a difference."""
    return float(wilcoxon(differences).pvalue) if differences.any() else 1.0


def rank_lines(errors: pd.DataFrame) -> tuple[list[tuple[str, str]], list[str]]:
    """Rows with their mean ranks, the best first, and notes with the critical difference."""
    columns, ranks = errors.dropna(axis="columns").columns, mean_ranks(errors)
    if len(errors) < 2 or ranks.empty:
        return [], ["No ranks: they need two rows, and a column with a test error of every row."]
    least = critical_difference(len(errors), len(columns))
    notes = [
        f"Ranks of mean test errors over columns: {', '.join(columns)}.",
        f"Mean ranks that differ by less than {least:.2f} are not told apart at the "
        f"{LEVEL * 100:.0f} % level (Nemenyi's test).",
    ]
    ordered = ranks.sort_values(kind="stable").items()
    return [(str(row), f"{rank:.2f}") for row, rank in ordered], notes


def print_statistics(
    table: Table, runs: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Print mean ranks with the critical difference, and the tests of methods that are named."""
    ranks, notes = rank_lines(row_errors(table, runs, rows, columns))
    print_table(f"{table.name}: mean ranks", ["row", "mean rank"], ranks, 1, notes)
    for named in table.named:
        if len(tests := paired_tests(table, named, runs, rows, columns)):
            title, notes = f"{table.name}: {named}", rival_notes(table, named, tests)
            print_table(title, RIVAL_HEAD, rival_lines(tests), 5, notes)
