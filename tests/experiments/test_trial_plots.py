"""The picture of a table's column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.experiments.curve_plot import curves_figure
from fedul_flwr.experiments.table_file import Size, Table, read_table
from fedul_flwr.experiments.tables_page import Drawn, _section, drawn
from tests.support.digits_table import FILE, TABLE


def run(rounds: list[int], errors: list[float]) -> dict[str, Any]:
    return {"curve": {"rounds": rounds, "test_error": errors}}


def test_a_line_for_each_row_with_a_run_the_mean_over_its_seeds(digits_table: Path) -> None:
    table = read_table(digits_table / "experiments", "mini/table-1")
    results = {
        ("FedUL", "M=10", 0): run([1, 2, 3], [8.0, 4.0, 3.0]),
        ("FedUL", "M=10", 1): run([2, 3], [6.0, 2.0]),  # round 1 was not measured: left out
        ("all labels", "M=12", 0): run([1], [1.0]),  # of another column
    }
    figure = curves_figure(table, "M=10", "full", results)
    (axes,) = figure.axes
    (line,) = axes.lines
    assert list(line.get_xdata()) == [2, 3]
    assert list(line.get_ydata()) == [5.0, 2.5]  # (4 + 6)/2, (3 + 2)/2
    assert [text.get_text() for text in axes.texts] == ["FedUL  2.50"]


def test_labels_of_equal_ends_do_not_cover_each_other(digits_table: Path) -> None:
    table = read_table(digits_table / "experiments", "mini/table-1")
    results = {(row, "M=10", 0): run([1], [5.0]) for row in ("FedUL", "all labels")}
    figure = curves_figure(table, "M=10", "full", results)
    heights = sorted(text.get_position()[1] for text in figure.axes[0].texts)
    assert heights[1] - heights[0] == pytest.approx(0.045)


def clients_said(table: Table, size: Size) -> str:
    results = {("FedUL", "M=10", 0): run([1], [5.0])}
    return str(curves_figure(table, "M=10", size, results).axes[0].get_title(loc="left"))


def test_the_picture_says_which_size_it_shows(digits_table: Path) -> None:
    FILE.write_text(TABLE + "\n[quick]\nclients = 2\n")
    table = read_table(digits_table / "experiments", "mini/table-1")
    assert clients_said(table, "full") == "3 clients"
    assert clients_said(table, "quick") == "quick size, 2 clients"


def test_given_tuned_runs_the_picture_says_that_every_row_was_searched(digits_table: Path) -> None:
    table = read_table(digits_table / "experiments", "mini/table-1")
    results = {("FedUL", "M=10", 0): run([1], [5.0])}
    figure = curves_figure(table, "M=10", "full", results, tuned=True)
    said = figure.axes[0].get_title(loc="left")
    assert said == "3 clients, every row with settings that one search chose for it"


def test_no_run_of_the_column_no_picture_and_no_link(digits_table: Path) -> None:
    FILE.write_text('picture = "M=12"\n' + TABLE)
    table = read_table(digits_table / "experiments", "mini/table-1")
    other = {("FedUL", "M=10", 0): run([1], [5.0])}
    assert drawn(table, {"full": other, "quick": {}}, {}) is None
    unmeasured = {("FedUL", "M=12", 0): run([], [])}
    assert drawn(table, {"full": unmeasured, "quick": {}}, {}) is None
    measured = {("FedUL", "M=12", 0): run([1], [5.0])}
    assert drawn(table, {"full": other, "quick": measured}, {}) == Drawn("quick", False, measured)
    # Tuned runs are comparable, others need not be: they are shown, whatever their size.
    shown = drawn(table, {"full": measured}, {"full": other, "quick": measured})
    assert shown == Drawn("quick", True, measured)
    for quick, linked in (({}, False), (measured, True)):
        results = {"full": with_figures(other), "quick": with_figures(quick)}
        page = _section(table, results, {}, digits_table)  # type: ignore[arg-type]
        assert ("![Digits](pictures/mini-table-1.svg)" in page) == linked


def with_figures(results: dict[Any, Any]) -> dict[Any, Any]:
    return {key: {**result, "figures": {"test_error": 5.0}} for key, result in results.items()}
