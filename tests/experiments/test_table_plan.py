"""The trials of the papers' tables: accepted settings without paths of this computer."""

from pathlib import Path

import pytest

from fedul_flwr.experiments.table import SIZES, read_table, table_names
from fedul_flwr.experiments.table_plan import Device, plan_columns

ROOT = Path(__file__).parents[2]
EXPERIMENTS = Path("experiments")


RUN = [
    name
    for name in table_names(ROOT / EXPERIMENTS)
    if not read_table(ROOT / EXPERIMENTS, name).benchmark
]


@pytest.mark.parametrize("name", RUN)
def test_given_any_table_then_it_is_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = read_table(EXPERIMENTS, name)
    for size in SIZES:
        trials = plan_columns(table, table.names, size, (0,), Device())
        cells = [(trial.column, trial.row) for trial in trials]
        assert cells == [(of, row) for of in table.names for row in table.column(of, size).rows]
        for trial in trials:
            start = str(trial.settings["start-from"])
            assert (trial.start is not None) == start.startswith("runs/")
            assert str(ROOT) not in str(trial.settings.values())


def test_given_a_run_that_starts_from_another_then_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = read_table(EXPERIMENTS, "xclp/table-3")
    trial, *_ = plan_columns(table, ["finetuned 10 %"], "quick", (4,), Device())
    settings = trial.settings
    assert trial.key == ("XCLP", "finetuned 10 %", 4)
    assert (settings["method"], settings["start-from:method"]) == ("xclp-predict", "labels-only")
    assert settings["start-from:seed"] == 4
    assert trial.start is not None
    assert trial.config.start_from == str(trial.start.directory)


def test_given_a_tuned_row_then_no_other_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where only other rows have xclp.secure
    tuned = {"MNIST IID": {"FixMatch": {"learning-rate": 0.5}}, "MNIST two classes": {}}
    table = read_table(EXPERIMENTS, "reference/clients")
    trials = plan_columns(table, list(tuned), "quick", (1, 2), Device(), tuned)
    assert [one.key for one in trials] == [("FixMatch", "MNIST IID", seed) for seed in (1, 2)]
    assert {trial.settings["learning-rate"] for trial in trials} == {0.5}
