"""Which trials run, run again or resume, and the files of a comparison; training is replaced."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments import compare_files
from fedul_flwr.experiments.compare_table import print_rows, texts
from fedul_flwr.experiments.trial_plan import Plan, make_plan
from fedul_flwr.results.figure_style import draw_formats
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


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_given_finished_trials_then_they_do_not_run_again(
    training: FakeTraining, tmp_path: Path
) -> None:
    asked = plan(tmp_path)
    training.run(asked)
    assert training.started == [("fedul", 0), ("supervised", 0), ("fedul", 1), ("supervised", 1)]
    assert training.titles[0] == "trial 1 of 4: FedUL, seed 0"
    assert training.titles[2].startswith("trial 3 of 4: FedUL, seed 1, about ")
    files = {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")}
    rows = training.run(plan(tmp_path))
    assert training.started == []
    assert {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")} == files
    assert any(line.startswith("4 of 4 ") for line in training.said)
    assert [row.ranking.error.mean for row in rows] == [3.5, 1.25]


def test_given_finished_trials_then_the_files_have_table_notes_and_conditions(
    training: FakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_files, "draw_formats", draw_formats)
    asked = plan(tmp_path)
    training.run(asked)
    # Differences 2 and 2.5, mean 2.25, standard deviation 0.3536: t = 9 with one degree of
    # freedom, p = 1 - 2 / pi * atan(9) = 0.0704. Half an interval is 12.706 * s / sqrt(2): of s =
    # 0.7071 it is 6.353, of 0.3536 3.177.
    assert (
        (asked.output / "comparison.md").read_text()
        == """\
# Comparison

| run | test error (%) | 95 % | p | best round | time | a round | up | down | seeds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| FedUL | **3.50 (0.71)** | ± 6.35 | 0.070 | 2, 2 | 20 s | 9 s | 1.5 MB | 3 MB | 2 |
| All \\| labels | **1.25 (0.35)** | ± 3.18 | best | 2, 2 | 20 s | 9 s | 1.5 MB | 3 MB | 2 |

- Test error in percent: mean (sample standard deviation) over seeds.
- 95 %: half of the mean's confidence interval over seeds, by Student's t.
- Bold: the lowest mean, and the means that a two-sided paired t-test over seeds does not tell \
apart from it at the 5 % level (p is its p-value). With fewer seeds the test tells fewer runs apart.

## Conditions

- Clients: 4
- Seeds: 0, 1
- Settings of all runs: `num-rounds = 2`
- FedUL: `method = "fedul"`
- All \\| labels: `method = "supervised"`
- All other settings have their defaults. Time and traffic are means over trials.
"""
    )
    first, second = table(asked.output / "comparison.csv")
    assert float(first["half_width"]) == pytest.approx(6.3531, abs=1e-4)
    assert (first["run"], first["mean"], first["marked"], first["n_seeds"]) == (
        "FedUL",
        "3.5",
        "true",
        "2",
    )
    assert (second["p_value"], second["seconds"], second["bytes_up"]) == ("", "20.0", "1500000.0")
    shares = ("percent_up", "percent_down", "nonzero_up_percent", "nonzero_down_percent")
    assert [second[key] for key in shares] == ["50.0", "100.0", "", ""]
    trials = table(asked.output / "trials.csv")
    assert trials[1] == {
        "run": "All | labels",
        "seed": "0",
        "status": "finished",
        "test_error": "1.0",
        "best_round": "2",
        "seconds_total": "20.0",
        "bytes_up": "1500000",
        "bytes_down": "3000000",
        "percent_up": "50.0",
        "percent_down": "100.0",
        "nonzero_up_percent": "",
        "nonzero_down_percent": "",
        **{"balanced_accuracy": "89.0", "auc": "0.9", "ece": "", "nll": "", "brier": ""},
        "directory": "all-labels/seed-0",
    }
    assert (asked.output / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_given_an_interrupted_trial_then_it_resumes(training: FakeTraining, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    training.failing = {("fedul", 1): KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        training.run(asked)
    assert [row["status"] for row in table(asked.output / "trials.csv")] == [
        "finished",
        "finished",
        "interrupted",
        "to do",
    ]
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
    rows = training.run(asked)
    assert len(training.started) == 4
    assert [row.failed for row in rows] == [2, 0]
    assert (texts(rows[0])[1], texts(rows[0])[-1]) == ("failed", "0 of 2")
    assert (asked.trials[0].directory / "error.txt").read_text().split() == reason.split()
    print_rows(asked, rows)
    for text in (capsys.readouterr().out, (asked.output / "comparison.md").read_text()):
        assert f"Failed: FedUL, seed 0: {reason}" in text
    training.failing = {}
    rows = training.run(plan(tmp_path))
    assert training.started == [("fedul", 0), ("fedul", 1)]
    assert [row.failed for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.5}, r"fedul/seed-0 was run with learning-rate = 'auto', not 0.5"),
        ({"clients": 5}, "num-supernodes = 4, not 5"),
        ({"runs": {"FedUL": {"method": "supervised"}}}, "method = 'fedul', not 'supervised'"),
    ],
)
def test_given_changed_settings_then_they_are_refused(
    training: FakeTraining, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    training.run(plan(tmp_path))
    with refuses("result-of-other-settings"):
        training.run(plan(tmp_path, **changes))
    assert training.started == []


def test_given_a_spent_privacy_budget_then_the_trial_is_finished(
    training: FakeTraining, tmp_path: Path
) -> None:
    asked = plan(tmp_path, {"FedUL": RUNS["FedUL"]}, (0,))
    training.run(asked)
    file = asked.trials[0].directory / "summary.json"
    cut = {**json.loads(file.read_text()), "rounds": 1}
    for exhausted, started in ((True, []), (False, [("fedul", 0)])):
        file.write_text(json.dumps({**cut, "budget_exhausted": exhausted}))
        training.run(asked)
        assert training.started == started


def test_given_more_rounds_then_finished_trials_resume(
    training: FakeTraining, tmp_path: Path
) -> None:
    training.run(plan(tmp_path))
    training.run(plan(tmp_path, num_rounds=30))  # the default, which plain resuming cannot tell
    assert len(training.started) == 4
    assert {config.num_rounds for config in training.configs[4:]} == {30}
    assert all(config.resume for config in training.configs[4:])
    training.run(plan(tmp_path, num_rounds=30))
    assert training.started == []
