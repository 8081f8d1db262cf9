"""The paper's figures beside ours: lines of a table with the means of runs, and their curves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.statistics import Estimate, stack_curves
from fedul_flwr.experiments.table import Size, Table
from fedul_flwr.experiments.text_tables import print_table

Kind = tuple[Size, bool]
"""Size of runs, and whether a search chose their settings."""
_FORM = "mean ± half of its 95 % confidence interval (std over seeds)"


@dataclass(frozen=True)
class Line:
    """One measure of one row and column: the paper's figure, and ours by kind of runs."""

    row: str
    column: str
    measure: str
    paper: Estimate
    ours: Mapping[Kind, Estimate]

    @property
    def heading(self) -> str:
        """Name and unit of the measure."""
        return METRICS[self.measure].heading

    def text(self, kind: Kind | None = None, none: str = "–") -> str:
        """Our figure of a kind of runs with the digits of the measure, or the paper's."""
        figure = self.paper if kind is None else self.ours.get(kind, Estimate())
        return none if figure.mean is None else figure.text(METRICS[self.measure].digits)

    def difference(self, kind: Kind) -> str:
        """Our figure minus the paper's."""
        ours, paper = self.ours.get(kind, Estimate()).mean, self.paper.mean
        if ours is None or paper is None:
            return "–"
        return f"{ours - paper:+.{METRICS[self.measure].digits}f}"


def lines(
    table: Table, runs: pd.DataFrame, rows: Collection[str], columns: Sequence[str]
) -> Iterator[Line]:
    """Lines of a table for each of the rows, columns and measures, with or without figures."""
    cells = ["size", "tuned", "column", "row"]
    ours: dict[Any, dict[Kind, Estimate]] = {}
    for measure in table.measures:
        values = METRICS[measure].of(runs).dropna()
        kind: Any
        for kind, of in values.groupby([runs[key] for key in cells]):
            size, tuned, *cell = kind
            ours.setdefault((*cell, measure), {})[size, bool(tuned)] = Estimate.of(of.tolist())
    for column in columns:
        for row in table.column(column).rows:
            for measure in table.measures if row in rows else ():
                paper = Estimate(*table.figure(measure, column, row))
                yield Line(row, column, measure, paper, ours.get((column, row, measure), {}))


def mean_curves(
    table: Table, column: str, runs: pd.DataFrame
) -> dict[str, tuple[list[int], list[float]]]:
    """Rounds that all seeds measured, and mean test errors in them, by row of a column."""
    by_row = {}
    for row in table.rows:
        of_row = runs[(runs["column"] == column) & (runs["row"] == row)]
        curves = zip(of_row["rounds"], of_row["test_errors"], strict=True)
        rounds, errors = stack_curves(dict(zip(*curve, strict=True)) for curve in curves)
        if rounds:
            by_row[row] = rounds, [float(mean) for mean in errors.mean(axis=0)]
    return by_row


def print_lines(table: Table, kind: Kind | None, shown: Sequence[Line]) -> None:
    """Print the paper's figures, ours of a kind and the difference; without a kind the paper's."""
    several = len(table.measures) > 1
    names = ["column", "row", *(["measure"] if several else [])]
    numbers = ["paper"]
    if kind is not None:
        numbers += [f"{'tuned' if kind[1] else 'ours'}, {kind[0]}", "difference"]
    texts = [
        (
            *(line.column, line.row, *([line.heading] if several else []), line.text()),
            *((line.text(kind, "not run"), line.difference(kind)) if kind else ()),
        )
        for line in shown
    ]
    notes = [] if several else [f"{METRICS[table.measures[0]].heading}, {_FORM}."]
    title = f"{table.name}: {table.title}"
    print_table(title, [*names, *numbers], texts, len(numbers), notes)
