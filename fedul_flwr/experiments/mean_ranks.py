"""Mean ranks of methods over the columns of a table, and how far apart they must be.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006, section 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

from fedul_flwr.experiments.estimates import LEVEL
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


def print_ranks(name: str, errors: pd.DataFrame) -> None:
    """Print the mean ranks of a table and the critical difference."""
    lines, notes = rank_lines(errors)
    print_table(f"{name}: mean ranks", ["row", "mean rank"], lines, 1, notes)
