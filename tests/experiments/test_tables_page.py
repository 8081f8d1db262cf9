"""The paper's figures beside ours: in a line, and in tables on request."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from docs.hooks.tables import not_run_lines, run_lines
from fedul_flwr.experiments.paper_table import differences, figures, texts
from fedul_flwr.experiments.statistics import Estimate
from fedul_flwr.experiments.table import read_table
from tests.support.digits_table import change_table

EXPERIMENTS = Path("experiments")
FULL, QUICK = ("full", False), ("quick", False)


def runs(size: str, *found: tuple[str, str, int, Any]) -> pd.DataFrame:
    """Runs by row, column, seed, and test error or errors by round."""
    lines = [
        {
            **{"size": size, "tuned": False, "row": row, "column": column, "seed": seed},
            **({"rounds": [*of], "test_errors": [*of.values()]} if isinstance(of, dict) else {}),
            "test_error": None if isinstance(of, dict) else of,
        }
        for row, column, seed, of in found
    ]
    return pd.DataFrame(lines).set_index(["row", "column", "seed"], drop=False)


def test_given_some_runs_then_the_page_shows_them_and_counts_others(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    found = runs("quick", ("FedUL", "M=10", 0, 2.0))
    shown = figures(table, found, table.rows, table.names)
    assert run_lines(table, shown, [QUICK]) == [
        "In test error (%).",
        "",
        "| column | row | paper | quick | difference |",
        "| --- | --- | ---: | ---: | ---: |",
        "| M=10 | FedUL | 2.50 (0.50) | 2.00, 1 seed | -0.50 |",
    ]
    # Two methods at M=10 and M=12 are four cells.
    where = "the paper's figures of these are in `experiments/mini/table_1.py`."
    assert not_run_lines(table, shown) == ["", f"Not run: 3 of 4 cells; {where}"]
    change_table('{"test-error": {"M=10": {"FedUL": (2.5, 0.5)}}}', "{}")
    without = read_table(EXPERIMENTS, "mini/table-1")
    assert not_run_lines(without, shown) == ["", "Not run: 3 of 4 cells."]


def test_given_three_seeds_then_a_line_has_mean_deviation_and_interval(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    three = runs("full", *(("FedUL", "M=10", s, one) for s, one in enumerate([2.0, 4.0, 6.0])))
    shown = figures(table, three, ["FedUL", "all labels"], ["M=10"])
    # Mean 4, sample variance (4 + 0 + 4) / 2 = 4. The 0.975 quantile of t with 2 degrees of freedom
    # is 4.3027: half of the interval is 4.3027 * 2 / sqrt(3) = 4.968.
    assert shown[FULL].iloc[0] == Estimate(4.0, 2.0, pytest.approx(4.9683, abs=1e-4), 3)
    assert texts(shown, FULL, "not run") == ["4.00 ± 4.97 (2.00), 3 seeds", "not run"]
    assert texts(shown, "paper", "–") == ["2.50 (0.50)", "–"]
    assert differences(shown, FULL) == ["+1.50", "–"]
