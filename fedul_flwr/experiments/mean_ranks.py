"""Mean ranks of methods over the columns of a table, and how far apart they must be.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006, section 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, studentized_range

from fedul_flwr.experiments.compare_table import LEVEL, print_table
from fedul_flwr.experiments.paper_table import Results, of_cell
from fedul_flwr.experiments.table_file import Table

Errors = Mapping[str, Mapping[str, float]]
"""Errors by row and column; a row need not have all columns."""


def complete_columns(errors: Errors) -> list[str]:
    """The columns that all rows have, in the order of the first row."""
    rows = list(errors.values())
    return [column for column in (rows[0] if rows else ()) if all(column in row for row in rows)]


def mean_ranks(errors: Errors) -> dict[str, float]:
    """Mean rank of each row over the columns that all rows have; the lowest error has rank 1.

    Rows of equal error share the mean of their ranks. Without such a column there are no ranks.
    """
    columns = complete_columns(errors)
    if not columns:
        return {}
    table = np.array([[of_row[column] for column in columns] for of_row in errors.values()])
    return dict(zip(errors, rankdata(table, axis=0).mean(axis=1).tolist(), strict=True))


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
    table: Table, rows: Sequence[str], columns: Sequence[str], results: Results
) -> dict[str, dict[str, float]]:
    """Mean test errors (percent) of the rows that have ranks, in columns where no seed is missing.

    A seed is missing where another row has a result of it.
    """
    ranked = [row for row in rows if row not in table.settings.unranked]
    errors: dict[str, dict[str, float]] = {row: {} for row in ranked}
    for column in columns:
        num_seeds = len({seed for _, of, seed in results if of == column})
        for row in ranked:
            figures = [result["figures"] for result in of_cell(results, row, column)]
            values = [each["test_error"] for each in figures if "test_error" in each]
            if len(values) == num_seeds > 0:
                errors[row][column] = sum(values) / num_seeds
    return errors


def rank_lines(errors: Errors) -> tuple[list[tuple[str, str]], list[str]]:
    """Rows with their mean ranks, the best first, and notes with the critical difference."""
    columns, ranks = complete_columns(errors), mean_ranks(errors)
    if len(errors) < 2 or not ranks:
        return [], ["No ranks: they need two rows, and a column with a test error of every row."]
    least = critical_difference(len(errors), len(columns))
    notes = [
        f"Ranks of mean test errors over columns: {', '.join(columns)}.",
        f"Mean ranks that differ by less than {least:.2f} are not told apart at the "
        f"{LEVEL * 100:.0f} % level (Nemenyi's test).",
    ]
    return [(row, f"{ranks[row]:.2f}") for row in sorted(ranks, key=ranks.__getitem__)], notes


def print_ranks(name: str, errors: Errors) -> None:
    """Print the mean ranks of a table and the critical difference."""
    lines, notes = rank_lines(errors)
    print_table(f"{name}: mean ranks", ["row", "mean rank"], lines, 1, notes)
