"""The paper's figures beside ours: in a line, on the page of all tables, and in a plot."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.experiments.compare_table import Estimate
from fedul_flwr.experiments.paper_table import lines
from fedul_flwr.experiments.table_file import read_table
from fedul_flwr.experiments.tables_page import not_run_lines, result_lines
from fedul_flwr.experiments.trial_plots import column_figure
from tests.support.digits_table import FILE, TABLE

EXPERIMENTS = Path("experiments")


def test_given_some_runs_then_the_page_shows_them_and_counts_others(digits_table: Path) -> None:
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
    where = "the paper's figures of these are in `experiments/mini/table-1.toml`."
    assert not_run_lines(table, shown) == ["", f"Not run: 3 of 4 cells; {where}"]
    FILE.write_text(TABLE.partition("[paper.test-error]")[0])
    without = read_table(EXPERIMENTS, "mini/table-1")
    assert not_run_lines(without, shown) == ["", "Not run: 3 of 4 cells."]


def test_given_three_seeds_then_a_line_has_mean_deviation_and_interval(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    errors = enumerate([2.0, 4.0, 6.0])
    results = {("FedUL", "M=10", s): {"figures": {"test_error": one}} for s, one in errors}
    line, other = lines(table, {"full": results}, ["FedUL", "all labels"], ["M=10"])
    # Mean 4, sample variance (4 + 0 + 4) / 2 = 4. The 0.975 quantile of t with 2 degrees of freedom
    # is 4.3027: half of the interval is 4.3027 * 2 / sqrt(3) = 4.968.
    assert line.ours["full"] == Estimate(4.0, 2.0, 3, pytest.approx(4.9683, abs=1e-4))
    assert line.texts("full") == ("4.00 ± 4.97 (2.00), 3 seeds", "+1.50")
    assert (other.text(other.paper), *other.texts("full")) == ("–", "not run", "–")


def run(rounds: list[int], errors: list[float]) -> dict[str, Any]:
    return {"curve": {"rounds": rounds, "test_error": errors}}


def test_given_two_seeds_then_a_line_is_their_mean_in_common_rounds(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
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
