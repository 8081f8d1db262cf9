"""What a table shows: mean ranks, and one method, named beforehand, against each of its rivals.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006, sections 3.1.3
and 3.2.2; Holm, A simple sequentially rejective multiple test procedure, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import studentized_range, wilcoxon

from fedul_flwr.experiments.estimates import LEVEL, paired_p_value
from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.text_tables import print_table


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
