"""Runs and seeds, and the trials that they make."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.experiments.trial_plan import Plan, make_plan, method_runs, read_runs, seeds_of
from tests.support.given_labels_method import GIVEN_METHOD
from tests.support.refusals import refuses

TWO = {"F": {"method": "fedul"}, "S": {"method": "supervised"}}


DIFFER = "The runs do not share their data splits"
GIVEN = {"method": GIVEN_METHOD}


def plan(tmp_path: Path, runs: Any = TWO, seeds: Any = (0,), shared: Any = ()) -> Plan:
    return make_plan(runs, dict(shared), seeds, 4, tmp_path / "out")


def test_given_runs_and_seeds_then_each_run_has_each_seed(tmp_path: Path) -> None:
    found = plan(tmp_path, seeds=(3, 5))
    trials = [(trial.row, trial.seed) for trial in found.trials]
    assert trials == [("F", 3), ("S", 3), ("F", 5), ("S", 5)]
    trial = found.trials[3]
    assert trial.directory == tmp_path / "out" / "s" / "seed-5"
    assert (trial.config.method, trial.config.seed) == ("supervised", 5)
    assert trial.config.output == str(trial.directory)
    assert found.notes == ()


def test_given_a_file_then_each_table_is_a_run(tmp_path: Path) -> None:
    file = tmp_path / "runs.toml"
    file.write_text(
        '[FedUL]\nmethod = "fedul"\n["FedAvg 10 %"]\nmethod = "supervised"\n'
        '["FedUL, FedProx"]\nbase = "fedprox"\n["FedUL, FedProx".fedprox]\nproximal-mu = 0.1\n'
    )
    assert read_runs(file) == {
        "FedUL": {"method": "fedul"},
        "FedAvg 10 %": {"method": "supervised"},
        "FedUL, FedProx": {"base": "fedprox", "fedprox.proximal-mu": 0.1},
    }
    own = tmp_path / "rows.py"
    own.write_text('ROWS = {"FedUL": {"method": "fedul"}}\n')
    assert read_runs(own) == {"FedUL": {"method": "fedul"}}


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "table-file-wrong"), ("[a", "file-syntax"), ("[a]\nx = [1]\n", "setting-wrong-type")],
)
def test_given_a_wrong_file_then_it_is_refused(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "runs.toml"
    file.write_text(text)
    with refuses(code):
        read_runs(file)


@pytest.mark.parametrize(
    ("runs", "shared", "code"),
    [
        (TWO, {"seed": 1}, "setting-not-allowed"),
        ({"F": {"output": "x"}}, {}, "setting-not-allowed"),
        (TWO, {"fedul.nonsense": 1}, "unknown-name"),
        ({"S": {"method": "supervised", "fedul.strict-rank": True}}, {}, "setting-without-effect"),
        ({"A": {}, "a": {}}, {}, "name-twice"),
        ({"%": {}}, {}, "table-file-wrong"),
    ],
)
def test_given_a_wrong_setting_then_it_is_refused_before_a_trial_starts(
    tmp_path: Path, runs: dict[str, Any], shared: dict[str, Any], code: str
) -> None:
    with refuses(code):
        make_plan(runs, shared, (0,), 4, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_given_a_key_of_a_table_then_it_applies_to_runs_that_use_the_table(tmp_path: Path) -> None:
    runs = {**TWO, "P": {"base": "fedprox", "num-rounds": 7}}
    shared = {"num-rounds": 5, "fedprox.proximal-mu": 0.3, "fedul.strict-rank": True}
    found = plan(tmp_path, runs, shared={**shared, "fedul.num-sets": 20})
    flat = {trial.row: trial.config.to_flat() for trial in found.trials}
    assert flat["P"]["fedprox.proximal-mu"] == 0.3
    assert [flat[name]["num-rounds"] for name in "FSP"] == [5, 5, 7]  # a run's own wins
    assert [flat[name]["fedul.num-sets"] for name in "FSP"] == [20, 20, 20]
    assert [flat[name].get("fedul.strict-rank") for name in "FSP"] == [True, None, True]


def test_given_a_run_that_trains_nothing_then_settings_of_training_do_not_reach_it(
    tmp_path: Path,
) -> None:
    runs = {"F": {}, "H": {"method": "closed-form"}, "X": {"method": "xclp-predict"}}
    shared = {"num-rounds": 3, "learning-rate": 0.1, "base": "fedprox", "fedprox.proximal-mu": 0.3}
    found = plan(tmp_path, runs, shared=shared)
    flat = {trial.row: trial.config.to_flat() for trial in found.trials}
    # One message and one refinement of it; the other trains nothing at all.
    assert [flat[name]["num-rounds"] for name in "FHX"] == [3, 2, 30]
    assert [flat[name]["learning-rate"] for name in "FHX"] == [0.1, "auto", "auto"]
    assert [flat[name]["base"] for name in "FHX"] == ["fedprox", "fedavg", "fedavg"]
    assert found.notes == (
        "Run 'H' does not use base, learning-rate, num-rounds; it has 2 rounds.",
        "Run 'X' does not use base, learning-rate, num-rounds.",
    )
    for key, value in shared.items():
        with refuses("setting-without-effect"):
            plan(tmp_path, {"H": {"method": "closed-form", key: value}})


def test_given_runs_on_different_splits_then_there_is_a_warning(tmp_path: Path) -> None:
    runs = {"F": {}, "S": TWO["S"], "D": {"partition": "dirichlet", "fedul.num-sets": 20}}
    assert plan(tmp_path, runs).notes == (
        f"{DIFFER}, partition differs: 'iid' for F, S; 'dirichlet' for D.",
        f"{DIFFER}, fedul.num-sets differs: 10 for F, S; 20 for D.",
    )
    same = {"F": {"learning-rate": 0.1}, "S": {"method": "supervised", "model": "mlp"}}
    assert plan(tmp_path, same, shared={"partition": "dirichlet"}).notes == ()
    labels = {"F": {}, "G": GIVEN, "H": {**GIVEN, "labels.total": 20}}
    total = f"{DIFFER}, labels.total differs: 'auto' for G; 20 for H."
    assert plan(tmp_path, labels).notes == (total,)


def test_given_a_run_with_all_labels_then_its_split_counts_as_the_same(tmp_path: Path) -> None:
    few = {"U": {"method": "uda", "labels.total": 20}, "A": {"method": "all-labels"}}
    server = {"method": "fixmatch", "scenario.labels-at": "server"}
    assert plan(tmp_path, few).notes == ()
    at_server = plan(tmp_path, {"F": server, "A": few["A"]}, shared={"server-fraction": 0.1})
    assert at_server.notes == ()
    other = {**few, "A": {"method": "all-labels", "server-fraction": 0.1}}
    fraction = f"{DIFFER}, server-fraction differs: 0.0 for U; 0.1 for A."
    assert plan(tmp_path, other).notes == (fraction,)
    # Points that are kept for prediction are kept from it as well.
    new = {**few, "U": {"method": "uda", "labels.new-fraction": 0.1}}
    fraction = f"{DIFFER}, labels.new-fraction differs: 0.1 for U; 0.0 for A."
    assert plan(tmp_path, new).notes == (fraction,)


def test_given_lists_of_methods_and_seeds_then_wrong_ones_are_refused() -> None:
    assert method_runs("fedul, supervised") == {
        "fedul": {"method": "fedul"},
        "supervised": {"method": "supervised"},
    }
    with refuses("name-twice", option="--methods"):
        method_runs("fedul,fedul")
    assert seeds_of("4, 0") == (4, 0)
    assert seeds_of(2) == (0, 1)
    for seeds in ("", "1.5", "-1", "1,1", 0, [-1]):
        with refuses("option-not-allowed", option="--seeds"):
            seeds_of(seeds)
