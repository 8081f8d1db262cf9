"""The plot of a table's column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedul_flwr.experiments.table_file import read_table
from fedul_flwr.experiments.trial_plots import column_figure


def run(rounds: list[int], errors: list[float]) -> dict[str, Any]:
    return {"curve": {"rounds": rounds, "test_error": errors}}


def test_given_two_seeds_then_a_rows_line_is_their_mean_in_rounds_that_both_measured(
    digits_table: Path,
) -> None:
    table = read_table(digits_table / "experiments", "mini/table-1")
    results = {
        ("FedUL", "M=10", 0): run([1, 2, 3], [8.0, 4.0, 3.0]),
        ("FedUL", "M=10", 1): run([2, 3], [6.0, 2.0]),  # round 1 was not measured: left out
        ("all labels", "M=12", 0): run([1], [1.0]),  # of another column
    }
    figure = column_figure(table, "M=10", "full", results)
    (axes,) = figure.axes
    (line,) = axes.lines
    assert list(line.get_xdata()) == [2, 3]
    assert list(line.get_ydata()) == [5.0, 2.5]  # (4 + 6)/2, (3 + 2)/2
    assert [text.get_text() for text in axes.texts] == ["FedUL  2.50"]
