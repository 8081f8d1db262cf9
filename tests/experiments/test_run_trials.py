"""Which trials run, run again or resume, and the files of a comparison; training is replaced."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments import compare_files
from fedul_flwr.experiments.compare_table import print_runs
from fedul_flwr.experiments.trial_plan import Plan, make_plan
from fedul_flwr.results.figure_style import draw
from tests.experiments.conftest import csv_rows
from tests.support.fake_training import FakeTraining
from tests.support.refusals import refuses

RUNS = {"FedUL": {"method": "fedul"}, "All | labels": {"method": "supervised"}}


def plan(
    tmp_path: Path, runs: Any = RUNS, seeds: Any = (0, 1), clients: int = 4, **more: Any
) -> Plan:
    shared = {"num-rounds": 2, **{key.replace("_", "-"): value for key, value in more.items()}}
    return make_plan(runs, shared, seeds, clients, tmp_path / "out")


@pytest.fixture
def training() -> FakeTraining:
    return FakeTraining()


def test_given_finished_trials_then_none_runs(training: FakeTraining, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    training.run(asked)
    assert training.started == [("fedul", 0), ("supervised", 0), ("fedul", 1), ("supervised", 1)]
    assert training.titles[0] == "trial 1 of 4: FedUL, seed 0"
    assert training.titles[2].startswith("trial 3 of 4: FedUL, seed 1, about ")
    files = {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")}
    compared = training.run(plan(tmp_path, device="auto", tracking="tensorboard"))
    assert training.started == []
    assert {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")} == files
    assert any(line.startswith("4 of 4 ") for line in training.said)
    assert compared.ranked["mean"].tolist() == [3.5, 1.25]
    training.run(plan(tmp_path, seeds=(0, 1, 2)))
    assert training.started == [("fedul", 2), ("supervised", 2)]


def test_given_finished_trials_then_the_files_have_table_notes_and_conditions(
    training: FakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_files, "draw", draw)
    asked = plan(tmp_path)
    training.run(asked)
    # Differences 2 and 2.5, mean 2.25, standard deviation 0.3536: t = 9 with one degree of
    # freedom, p = 1 - 2 / pi * atan(9) = 0.0704. Half an interval is 12.706 * s / sqrt(2): of s =
    # 0.7071 it is 6.353, of 0.3536 3.177. Nothing is bold with two seeds.
    assert (
        (asked.output / "comparison.md").read_text()
        == """\
# Comparison

| run | test error (%) | 95 % | p | best round | time | a round | up | down | seeds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| FedUL | 3.50 (0.71) | ± 6.35 | 0.070 | 2, 2 | 20 s | 9 s | 1.5 MB | 3 MB | 2 |
| All \\| labels | 1.25 (0.35) | ± 3.18 | best | 2, 2 | 20 s | 9 s | 1.5 MB | 3 MB | 2 |

- Test error in percent: mean (sample standard deviation) over seeds.
- 95 %: half of the mean's confidence interval over seeds, by Student's t.
- Bold: no run. That needs two runs with 3 seeds in common.
- FedUL learned from: unlabeled sets with known class shares at clients, at least as many \
sets as classes; classes that look alike at all clients; validation labels chose the round.
- All \\| labels learned from: labels for all points of clients, or a fraction; here 100 % \
of them; validation labels chose the round.

## Conditions

- Clients: 4
- Seeds: 0, 1
- Settings of all runs: `num-rounds = 2`
- FedUL: `method = "fedul"`; automatic: `selection = "validation"`
- All \\| labels: `method = "supervised"`; automatic: `selection = "validation"`
- All other settings have their defaults. Time and traffic are means over trials.
"""
    )
    first, _ = csv_rows(asked.output / "comparison.csv")
    assert float(first["half_width"]) == pytest.approx(6.3531, abs=1e-4)
    assert (first["mean"], first["marked"], first["n_seeds"]) == ("3.5", "false", "2")
    trials = csv_rows(asked.output / "trials.csv")
    expected = {
        **{"run": "All | labels", "seed": "0", "status": "finished", "test_error": "1.0"},
        **{"bytes_up": "1500000", "percent_up": "50.0", "nonzero_up_percent": "", "ece": ""},
        **{"balanced_accuracy": "89.0", "auc": "0.9", "directory": "all-labels/seed-0"},
    }
    assert trials[1] | expected == trials[1]
    assert (asked.output / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_latex_sets_signs_that_text_cannot(training: FakeTraining, tmp_path: Path) -> None:
    runs = {"α < β_1 | 5 %": {"method": "fedul"}, "other": {"method": "supervised"}}
    asked = plan(tmp_path, runs, seeds=(0,))
    training.run(asked)
    text = (asked.output / "comparison.tex").read_text()
    assert r"$\alpha$ $<$ $\beta$\_1 \textbar{} 5 \% & 3.00 & -- &" in text
    assert text.isascii()


def test_given_an_interrupted_trial_then_it_resumes(training: FakeTraining, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    training.failing = {("fedul", 1): KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        training.run(asked)
    states = [row["status"] for row in csv_rows(asked.output / "trials.csv")]
    assert states == [*["finished"] * 2, "interrupted", "to do"]
    training.failing = {}
    training.run(plan(tmp_path))
    assert training.started == [("fedul", 1), ("supervised", 1)]
    resumed = training.configs[-2]
    assert resumed.resume == resumed.output == str(asked.trials[2].directory)
    assert training.configs[-1].resume == ""


@pytest.mark.parametrize(
    ("error", "reason"),
    [(UserError("No\nmemory."), "No memory."), (ValueError("odd"), "ValueError: odd")],
)
def test_given_a_failing_trial_then_others_run_and_the_next_call_repeats_it(
    training: FakeTraining,
    tmp_path: Path,
    error: Exception,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = plan(tmp_path)
    training.failing = {("fedul", 0): error, ("fedul", 1): error}
    compared = training.run(asked)
    assert len(training.started) == 4
    assert compared.ranked["failed"].tolist() == [2, 0]
    assert list(compared.cells.iloc[0, [1, -1]]) == ["failed", "0 of 2"]
    assert (asked.trials[0].directory / "error.txt").read_text().split() == reason.split()
    print_runs(compared)
    for text in (capsys.readouterr().out, (asked.output / "comparison.md").read_text()):
        assert f"Failed: FedUL, seed 0: {reason}" in text
    training.failing = {}
    compared = training.run(plan(tmp_path))
    assert training.started == [("fedul", 0), ("fedul", 1)]
    assert compared.ranked["failed"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.5},
        {"num_rounds": 1},
        {"clients": 5},
        {"runs": {"FedUL": {"method": "supervised"}}},
    ],
)
def test_changed_settings(training: FakeTraining, tmp_path: Path, changes: dict[str, Any]) -> None:
    training.run(plan(tmp_path))
    with refuses("result-of-other-settings"):
        training.run(plan(tmp_path, **changes))
    assert training.started == []


def test_given_a_spent_budget_then_it_is_finished(training: FakeTraining, tmp_path: Path) -> None:
    asked = plan(tmp_path, {"FedUL": RUNS["FedUL"]}, (0,))
    training.run(asked)
    file = asked.trials[0].directory / "summary.json"
    cut = {**json.loads(file.read_text()), "rounds": 1}
    for exhausted, started in ((True, []), (False, [("fedul", 0)])):
        file.write_text(json.dumps({**cut, "budget_exhausted": exhausted}))
        training.run(asked)
        assert training.started == started


def test_given_more_rounds_then_trials_resume(training: FakeTraining, tmp_path: Path) -> None:
    training.run(plan(tmp_path))
    training.run(plan(tmp_path, num_rounds=30))  # the default, which plain resuming cannot tell
    assert len(training.started) == 4
    assert {config.num_rounds for config in training.configs[4:]} == {30}
    assert all(config.resume for config in training.configs[4:])
    training.run(plan(tmp_path, num_rounds=30))
    assert training.started == []


def test_given_no_trained_round_then_it_restarts(training: FakeTraining, tmp_path: Path) -> None:
    training.run(plan(tmp_path, seeds=(0,)))
    directory = plan(tmp_path).trials[0].directory
    (directory / "last.safetensors").unlink()
    (directory / "summary.json").unlink()
    training.run(plan(tmp_path, seeds=(0,)))
    assert training.started == [("fedul", 0)]
    assert training.configs[-1].resume == ""


def test_given_an_unknown_test_error_then_it_is_not_ranked(
    training: FakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(tmp_path, seeds=(0,))
    training.run(asked)
    file = asked.trials[1].directory / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"test_error": None}))
    compared = training.run(asked)
    assert compared.ranked["best"].tolist() == [True, False]
    assert compared.cells.iloc[1, 1] == "–"
    text = (asked.output / "comparison.md").read_text()
    assert "best round of: All \\| labels, seed 0." in text
