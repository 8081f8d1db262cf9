"""The page of all tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.experiments.paper_table import lines
from fedul_flwr.experiments.table_file import read_table
from fedul_flwr.experiments.tables_page import (
    TableResults,
    markdown,
    not_run_lines,
    read_all,
    result_lines,
)
from tests.support.digits_table import FILE, TABLE

EXPERIMENTS = Path("experiments")


def test_given_a_table_without_runs_then_the_page_has_the_papers_figures_alone(
    digits_table: Path,
) -> None:
    assert markdown(read_all(EXPERIMENTS, Path("results"))).splitlines() == [
        "### mini/table-1",
        "",
        "Digits. A paper, table 1.",
        "Not run: `fedul-flwr reproduce mini/table-1`, or with `--quick`.",
        "",
        "| paper, test error (%) | FedUL |",
        "| --- | ---: |",
        "| M=10 | 2.50 (0.50) |",
    ]


def test_given_some_runs_then_the_page_shows_these_and_counts_the_others(
    digits_table: Path,
) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    results = {("FedUL", "M=10", 0): {"figures": {"test_error": 2.0}}}
    shown = list(lines(table, {"full": {}, "quick": results}, table.rows(), list(table.columns)))
    assert result_lines(table, shown, []) == [
        "In test error (%).",
        "",
        "| column | row | paper | quick | difference |",
        "| --- | --- | ---: | ---: | ---: |",
        "| M=10 | FedUL | 2.50 (0.50) | 2.00, 1 seed | -0.50 |",
    ]
    # Two methods at M=10 and M=12 are four cells.
    assert not_run_lines(table, shown) == [
        "",
        "Not run: 3 of 4 cells; the paper's figures of these are in "
        "`experiments/mini/table-1.toml`.",
    ]
    FILE.write_text(TABLE.partition("[paper.test-error]")[0])
    without = read_table(EXPERIMENTS, "mini/table-1")
    assert not_run_lines(without, shown) == ["", "Not run: 3 of 4 cells."]


@pytest.mark.parametrize(("column", "linked"), [("M=10", False), ("M=12", True)])
def test_given_a_run_of_the_column_then_the_page_shows_the_plot(
    digits_table: Path, column: str, linked: bool
) -> None:
    FILE.write_text('picture = "M=12"\n' + TABLE)
    table = read_table(EXPERIMENTS, "mini/table-1")
    results = {("FedUL", column, 0): {**run([1], [5.0]), "figures": {"test_error": 5.0}}}
    page = TableResults(table, Path("results"), {"full": results, "quick": {}}, {}).section()
    assert ("![Digits](pictures/mini-table-1.svg)" in page) == linked


def run(rounds: list[int], errors: list[float]) -> dict[str, Any]:
    return {"curve": {"rounds": rounds, "test_error": errors}}
