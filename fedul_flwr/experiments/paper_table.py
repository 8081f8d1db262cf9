"""The paper's figures beside ours: a line for each column, row and measure of a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pandas as pd

from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.statistics import (
    Estimate,
    complete_means,
    estimates,
    rank_table,
)
from fedul_flwr.experiments.table import SIZES, Size, Table
from fedul_flwr.experiments.text_tables import print_table

Kind = tuple[Size, bool]
"""Size of runs, and whether a search chose their settings."""
KINDS: tuple[Kind, ...] = (*((size, False) for size in SIZES), *((size, True) for size in SIZES))
_FORM = "mean ± half of its 95 % confidence interval (std over seeds)"


def by_seed(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """A measure by (column, row) and seed, of runs of one kind."""
    values = runs.assign(value=METRICS[measure].values(runs)).reset_index(drop=True)
    return values.pivot(index=["column", "row"], columns="seed", values="value").astype(float)


def figures(
    table: Table, runs: pd.DataFrame, rows: Collection[str], columns: Sequence[str]
) -> pd.DataFrame:
    """By column, row and measure the :class:`Estimate` of ``"paper"`` and of all :data:`KINDS`."""
    cells = [
        (column, row, measure)
        for column in columns
        for row in table.column(column).rows
        for measure in (table.measures if row in rows else ())
    ]
    shown = pd.DataFrame(
        {
            "paper": [
                Estimate(*table.figure(measure, column, row)) for column, row, measure in cells
            ]
        },
        index=pd.MultiIndex.from_tuples(cells, names=["column", "row", "measure"]),
        dtype=object,
    )
    for kind in KINDS:
        of_kind = runs[(runs["size"] == kind[0]) & (runs["tuned"] == kind[1])]
        ours = {
            (*cell, measure): Estimate(mean, std, half, int(count))
            for measure in table.measures
            for cell, mean, std, half, count in estimates(by_seed(of_kind, measure)).itertuples()
        }
        shown[kind] = [ours.get(cell, Estimate()) for cell in cells]
    return shown


def named(table: Table, shown: pd.DataFrame) -> pd.DataFrame:
    """Names of the lines of :func:`figures` and the paper's figures, as text."""
    names = shown.index.to_frame(index=False)
    names["measure"] = [METRICS[measure].heading for measure in names["measure"]]
    names["paper"] = texts(shown, "paper", none="–")
    return names if len(table.measures) > 1 else names.drop(columns="measure")


def texts(shown: pd.DataFrame, kind: Kind | str, none: str) -> list[str]:
    """Figures with the digits of their measures."""
    return [
        none if math.isnan(figure.mean) else figure.text(digits)
        for figure, digits in zip(shown[kind], _digits(shown), strict=True)
    ]


def _digits(shown: pd.DataFrame) -> list[int]:
    return [METRICS[measure].digits for measure in shown.index.get_level_values("measure")]


def differences(shown: pd.DataFrame, kind: Kind) -> list[str]:
    """Our figures minus the paper's."""
    apart = [
        ours.mean - paper.mean for ours, paper in zip(shown[kind], shown["paper"], strict=True)
    ]
    return [
        "–" if math.isnan(difference) else f"{difference:+.{digits}f}"
        for difference, digits in zip(apart, _digits(shown), strict=True)
    ]


def print_figures(table: Table, kind: Kind | None, shown: pd.DataFrame) -> None:
    """Print the paper's figures, ours of a kind and the difference; without a kind the paper's."""
    lines, numbers = named(table, shown), 1
    if kind is not None:
        numbers = 3
        lines[f"{'tuned' if kind[1] else 'ours'}, {kind[0]}"] = texts(shown, kind, none="not run")
        lines["difference"] = differences(shown, kind)
    notes = [] if "measure" in lines else [f"{METRICS[table.measures[0]].heading}, {_FORM}."]
    print_table(f"{table.name}: {table.title}", lines, numbers, notes)


def rank_rows(
    table: Table, runs: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Mean ranks of the rows that have one, of runs of one kind, and notes."""
    ranked = [row for row in rows if row not in table.unranked]
    return rank_table(complete_means(by_seed(runs, "test-error"), ranked, columns))


def print_ranks(
    table: Table, runs: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Print mean ranks with the critical difference."""
    ranks, notes = rank_rows(table, runs, rows, columns)
    print_table(f"{table.name}: mean ranks", ranks, 1, notes)
