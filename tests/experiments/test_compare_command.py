"""``fedul-flwr compare``: its options, and the real thing in process."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import flower_simulation
from tests.experiments.conftest import csv_rows
from tests.support.refusals import code_of
from tests.support.runs import assert_same_run

runner = CliRunner()
QUICK = 'num-rounds=2 local-epochs=1 model="mlp"'
TWO = ("--methods", "fedul,supervised", "--seeds", "0,1", "--num-supernodes", "3")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(*arguments: str) -> Any:
    return runner.invoke(app, ["compare", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "options-contradict"),
        (["--runs", "absent.toml"], "file-missing"),
        (["--methods", "fedul,x"], "unknown-name"),
        (["--methods", "fedul", "-c", "seed=1"], "setting-not-allowed"),
    ],
)
def test_wrong_arguments_write_nothing(arguments: list[str], code: str, here: Path) -> None:
    assert code_of(compare(*arguments).stderr) == code
    assert list(here.iterdir()) == []


def test_given_data_that_cannot_be_split_then_no_trial_starts(
    here: Path, ran: list[RunConfig]
) -> None:
    """Here of seeds 0 to 2 the last one gives a client too few points for its sets."""
    skewed = f"{QUICK} dataset='digits' partition='dirichlet' dirichlet.alpha=0.5"
    ten = ("--methods", "fedul", "--num-supernodes", "10", "--engine", "in-process", "-c", skewed)
    done = compare(*ten, "--seeds", "0,1,2", "--output", "all")
    assert code_of(done.stderr) == "too-few-points"
    assert "dirichlet.min-points" in done.stderr
    assert ran == []
    assert compare(*ten, "--seeds", "0", "--output", "first").exit_code == 0


def test_given_two_methods_and_seeds_then_each_trial_is_the_run_of_the_run_command(
    here: Path, ran: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*TWO, "-c", QUICK, "--engine", "in-process", "--measures", "balanced-accuracy")
    done = compare(*arguments)
    assert done.exit_code == 0, done.output
    assert [(run.method, run.seed) for run in ran] == [
        *(("fedul", 0), ("supervised", 0), ("fedul", 1), ("supervised", 1))
    ]
    output = here / "runs" / "compare-fedul-supervised"
    assert "trial 4 of 4: supervised, seed 1, about " in done.output
    assert "round 2/2: test error" in done.output
    assert f"Saved: {output}" in done.output
    fedul, supervised = csv_rows(output / "comparison.csv")
    trials = csv_rows(output / "trials.csv")
    errors = [float(trial["test_error"]) for trial in trials if trial["run"] == "fedul"]
    assert float(fedul["mean"]) == pytest.approx(sum(errors) / 2)
    assert (supervised["marked"], supervised["n_seeds"]) == ("false", "2")
    text = (output / "comparison.md").read_text()
    assert "supervised learned from: labels for all points" in text
    # What the rule of the data's size took; `model` was given.
    assert 'fedul: `method = "fedul"`; automatic: ' in text
    assert "`learning-rate = 0.003`" in text
    assert "`model = " not in text.partition("automatic")[2]
    balanced = [float(trial["balanced_accuracy"]) for trial in trials if trial["run"] == "fedul"]
    assert f"{sum(balanced) / 2:.2f} (" in (output / "comparison.md").read_text()

    # A trial is the run that `run` makes of the same settings.
    plain = ["run", "-c", QUICK, "-c", "seed=1 method='fedul'", "--num-supernodes", "3"]
    done = runner.invoke(app, [*plain, "--engine", "in-process", "--output", "plain"])
    assert done.exit_code == 0
    assert_same_run(output / "fedul" / "seed-1", here / "plain")

    # Nothing is left to simulate, and Flower does not start.
    ran.clear()
    monkeypatch.setattr(flower_simulation, "run_on_ray", None)
    again = compare(*TWO, "-c", QUICK, "--engine", "ray")
    assert again.exit_code == 0
    assert ran == []
    assert "4 of 4 " in again.output


def test_given_ray_then_a_failed_trial_says_why_and_costs_no_other(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[Any, ...]] = []

    def run_on_ray(config: RunConfig, *how: Any) -> str:
        used.append(how[:-1])
        return "It died."

    monkeypatch.setattr(flower_simulation, "run_on_ray", run_on_ray)
    options = ("--client-cpus", "2", "--client-gpus", "0.5", "-c", QUICK, "--engine", "ray")
    done = compare(*TWO, *options)
    assert done.exit_code == 1
    assert done.output.count("It died. The log of the run is ") == 8  # at once, and at the end
    assert used == [(3, 2, 0.5, "")] * 4


LABELING = """
["3 neighbors"]
method = "xclp-predict"
xclp.k = 3
["10 neighbors"]
method = "xclp-predict"
"""


def test_given_runs_that_label_then_labels_are_compared(here: Path, ran: list[RunConfig]) -> None:
    (here / "runs.toml").write_text(LABELING)
    arguments = ("--runs", "runs.toml", "--num-supernodes", "3", "--seeds", "0,1", "--output")
    arguments += ("out", "--engine", "in-process", "-c", 'labels.total=30 xclp.secure="plaintext"')
    done = compare(*arguments)
    assert done.exit_code == 0, done.output
    assert [(run.method, run.seed) for run in ran] == [("xclp-predict", s) for s in (0, 0, 1, 1)]
    assert "3 neighbors, seed 0: error" in done.output
    for row in csv_rows(here / "out" / "trials.csv"):
        assert row["status"] == "finished"
        scores = json.loads((here / "out" / row["directory"] / "labels.json").read_text())
        assert float(row["test_error"]) == scores["sources"]["xclp"]["error"]
    text = (here / "out" / "comparison.md").read_text()
    assert text.splitlines()[2].startswith("| run | error (%) | 95 % | p | best round |")
    assert "test error" not in text
    # There are no rounds, so their number means nothing.
    ran.clear()
    refused = compare(*arguments, "-c", "num-rounds=7")
    assert (refused.exit_code, code_of(refused.stderr)) == (1, "setting-without-effect")
    assert ran == []
