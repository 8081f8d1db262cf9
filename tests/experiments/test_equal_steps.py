"""Rows of a column with equal steps make that many, whatever the method."""

from __future__ import annotations

from pathlib import Path

import pytest
from sklearn.datasets import load_digits

import fedul_flwr as ff
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.experiments.table import read_table
from fedul_flwr.experiments.table_plan import Device, plan_columns

COLUMN = plan_columns(
    read_table(Path("experiments"), "reference/equal-steps"),
    ["CIFAR-10 features IID"],
    "quick",
    (1,),
    Device(),
)
OTHERS = (
    "num-rounds",
    "num-supernodes",
    "dataset",
    "features",
    "points-per-client",
    "output",
)
ROWS = {trial.row: trial.settings for trial in COLUMN if trial.row != "closed form"}
SMALL = {"evaluate-every": 1, "labels.total": 60, "semi.labels-only-rounds": 1}


@pytest.mark.parametrize("row", ROWS)
def test_given_a_row_of_features_then_its_clients_make_the_columns_steps(
    row: str, tmp_path: Path
) -> None:
    settings = {key: value for key, value in ROWS[row].items() if key not in OTHERS}
    settings |= {key: value for key, value in SMALL.items() if key in settings}
    ff.simulate(
        str(settings.pop("method")),
        load_digits(return_X_y=True),
        clients=3,
        rounds=2,
        engine="in-process",
        output=tmp_path / "run",
        **settings,
    )
    _, steps = Run.read(tmp_path / "run").series("steps")
    parts = 2 if row == "FedMatch" else 1  # each of them makes so many
    assert set(steps) == {parts * ROWS[row]["local-steps"]}
