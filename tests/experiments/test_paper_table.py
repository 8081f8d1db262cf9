"""The paper's figures beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedul_flwr.experiments.compare_table import Estimate
from fedul_flwr.experiments.paper_table import lines
from fedul_flwr.experiments.table_file import read_table

EXPERIMENTS = Path("experiments")


def test_given_three_seeds_then_a_line_has_mean_deviation_and_interval(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    errors = {0: 2.0, 1: 4.0, 2: 6.0}
    results = {
        ("FedUL", "M=10", seed): {"figures": {"test_error": error}}
        for seed, error in errors.items()
    }
    line, other = lines(table, {"full": results}, ["FedUL", "all labels"], ["M=10"])
    # Mean 4, sample variance (4 + 0 + 4) / 2 = 4. The 0.975 quantile of t with 2 degrees of freedom
    # is 4.3027: half of the interval is 4.3027 * 2 / sqrt(3) = 4.968.
    assert line.ours["full"] == Estimate(4.0, 2.0, 3, pytest.approx(4.9683, abs=1e-4))
    assert line.texts("full") == ("4.00 ± 4.97 (2.00), 3 seeds", "+1.50")
    assert (other.text(other.paper), *other.texts("full")) == ("–", "not run", "–")
