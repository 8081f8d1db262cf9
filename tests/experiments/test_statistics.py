"""Mean ranks and Nemenyi's test: by hand, against a published table, of a folder."""

import math
from pathlib import Path

import pandas as pd
import pytest

from fedul_flwr.experiments.paper_table import rank_rows
from fedul_flwr.experiments.statistics import (
    complete_means,
    critical_difference,
    mean_ranks,
)
from fedul_flwr.experiments.table import read_table, tables_of
from tests.support.digits_table import FILE, TABLE, change_table, invoke, output_of

EXPERIMENTS = Path("experiments")
ROWS = ["FedUL", "all labels"]
COLUMNS = ["M=10", "M=12"]


def test_given_errors_with_ties_then_mean_ranks_are_those_of_a_calculation_by_hand() -> None:
    errors = {
        "a": {"one": 1.0, "two": 5.0, "three": 2.0},
        "b": {"one": 3.0, "two": 5.0, "three": 1.0},
        "c": {"one": 2.0, "two": 5.0, "three": math.nextafter(2.0, 3)},  # equal but for rounding
    }
    # one: 1, 3, 2; two: all share (1 + 2 + 3)/3; three: b first, the others (2 + 3)/2.
    assert ranks(errors) == pytest.approx({"a": 5.5 / 3, "b": 2.0, "c": 6.5 / 3})


def ranks(errors: dict[str, dict[str, float]]) -> dict[str, float]:
    return dict(mean_ranks(pd.DataFrame.from_dict(errors, orient="index")))


def test_given_a_missing_cell_then_its_column_does_not_count() -> None:
    errors = {"a": {"one": 1.0, "two": 9.0}, "b": {"one": 2.0}, "c": {"two": 1.0, "one": 3.0}}
    assert ranks(errors) == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert ranks({**errors, "d": {"two": 0.0}}) == {}
    assert ranks({}) == {}


# Table 5 (a) of Demšar 2006.
@pytest.mark.parametrize(
    ("level", "num_rows", "q"),
    [
        *((0.05, 2, 1.960), (0.05, 3, 2.343), (0.05, 5, 2.728), (0.05, 10, 3.164)),
        *((0.10, 2, 1.645), (0.10, 5, 2.459), (0.10, 10, 2.920)),
    ],
)
def test_published_quantiles_are_ours(level: float, num_rows: int, q: float) -> None:
    for num_columns in (1, 14):
        scale = math.sqrt(num_rows * (num_rows + 1) / (6 * num_columns))
        found = critical_difference(num_rows, num_columns, level) / scale
        assert found == pytest.approx(q, abs=1e-3)  # it has three digits, some cut off


def runs(errors: dict[tuple[str, str], list[float]]) -> pd.DataFrame:
    """Runs with seeds 0, 1, … from the errors of a column and row."""
    lines = [(*cell, seed, error) for cell, of in errors.items() for seed, error in enumerate(of)]
    return pd.DataFrame(lines, columns=["column", "row", "seed", "test_error"])


def wide(errors: dict[tuple[str, str], list[float]]) -> pd.DataFrame:
    return runs(errors).pivot(index=["column", "row"], columns="seed", values="test_error")


def test_given_runs_then_a_cell_is_the_mean_over_seeds_or_missing() -> None:
    errors = {
        ("M=10", "FedUL"): [2.0, 4.0],
        ("M=12", "FedUL"): [2.0],
        ("M=10", "all labels"): [1.0],
    }
    means = complete_means(wide({**errors, ("M=10", "all labels"): [1.0, 1.0]}), ROWS, COLUMNS)
    assert means.loc["FedUL"].to_dict() == {"M=10": 3.0, "M=12": 2.0}
    assert means.loc["all labels"].dropna().to_dict() == {"M=10": 1.0}
    # Without a seed that the other row has.
    assert complete_means(wide(errors), ROWS[1:], COLUMNS[:1]).isna().all(axis=None)


def test_given_a_row_that_learns_from_more_then_it_has_no_rank(digits_table: Path) -> None:
    change_table("unranked=[]", 'unranked=["all labels"]')
    table = read_table(EXPERIMENTS, "mini/table-1")
    ranks, (note,) = rank_rows(table, runs({("M=10", row): [1.0] for row in ROWS}), ROWS, COLUMNS)
    assert ranks.empty
    assert "two rows" in note


def test_given_a_folder_then_all_its_tables_run_and_ranks_come_last(digits_table: Path) -> None:
    FILE.with_name("table_2.py").write_text(TABLE.replace("Digits", "More digits"))
    assert tables_of(EXPERIMENTS, "mini") == ["mini/table-1", "mini/table-2"]
    assert tables_of(EXPERIMENTS, "mini/table-1") == ["mini/table-1"]
    ran = invoke("reproduce", "mini", "--device", "cpu", "--columns", "M=10")
    assert ran.exit_code == 0, ran.output
    shown = output_of(ran)
    first, last = (shown.index(f"mini/table-{number}: mean ranks") for number in (1, 2))
    assert shown.index("mini/table-2: More digits") < first < last
    assert "Ranks of mean test errors over columns: M=10." in shown
    # One table has no ranks, and its results are there.
    alone = invoke("reproduce", "mini/table-2", "--device", "cpu", "--columns", "M=10")
    assert alone.exit_code == 0, alone.output
    assert "mean ranks" not in output_of(alone)
    assert "to run" not in output_of(alone)
    # A folder has them with one table, too.
    FILE.unlink()
    folder = invoke("reproduce", "mini", "--device", "cpu", "--columns", "M=10")
    assert "mini/table-2: mean ranks" in output_of(folder)
