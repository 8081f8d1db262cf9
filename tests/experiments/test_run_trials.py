"""What runs, what does not run again, and what is saved; training is replaced."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.compare_table import Row, print_table, texts
from fedul_flwr.experiments.run_trials import run_cells
from fedul_flwr.experiments.trial_plan import Plan, make_plan

RUNS = {"FedUL": {"method": "fedul"}, "All | labels": {"method": "supervised"}}
ERRORS = {("fedul", 0): 3.0, ("fedul", 1): 4.0, ("supervised", 0): 1.0, ("supervised", 1): 1.5}


def plan(
    tmp_path: Path, runs: Any = RUNS, seeds: Any = (0, 1), clients: int = 4, **more: Any
) -> Plan:
    shared = {"num-rounds": 2, **{key.replace("_", "-"): value for key, value in more.items()}}
    return make_plan(runs, shared, seeds, clients, tmp_path / "out")


class Stage:
    """Writes what a run writes; ``failing`` maps a method and seed to what happens instead."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.titles: list[str] = []
        self.configs: list[RunConfig] = []
        self.said: list[str] = []
        self.failing: dict[tuple[str, int], BaseException] = {}

    def __call__(self, config: RunConfig, title: str) -> None:
        key = (config.method, config.seed)
        self.started.append(key)
        self.titles.append(title)
        self.configs.append(config)
        directory = Path(config.output)
        directory.mkdir(parents=True, exist_ok=True)
        settings = config.to_flat() | {"selection": "validation"}
        done = 1 if key in self.failing else config.num_rounds
        lines = [
            {"round": step + 1, "test_error": ERRORS[key] + done - 1 - step} for step in range(done)
        ]
        (directory / "config.json").write_text(json.dumps({"settings": settings, "data": {}}))
        (directory / "last.safetensors").touch()
        (directory / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        if key in self.failing:
            raise self.failing[key]
        summary = {
            "num_clients": 4,
            "rounds": done,
            "best_round": done,
            "test_error": ERRORS[key],
            "seconds_total": 20.0,
            "seconds_per_round": 9.0,
            "bytes_up": 1_500_000,
            "bytes_down": 3_000_000,
            "percent_up": 50.0,
            "percent_down": 100.0,
        }
        (directory / "summary.json").write_text(json.dumps(summary))

    def run(self, plan: Plan) -> list[Row]:
        self.started.clear()
        return run_cells(plan, self, self.said.append)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_all_cells_run_once_and_never_again(stage: Stage, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    stage.run(asked)
    assert stage.started == [("fedul", 0), ("supervised", 0), ("fedul", 1), ("supervised", 1)]
    assert stage.titles[0] == "cell 1 of 4: FedUL, seed 0"
    assert stage.titles[2].startswith("cell 3 of 4: FedUL, seed 1, about ")
    files = {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")}
    rows = stage.run(plan(tmp_path))
    assert stage.started == []
    assert {p: p.stat().st_mtime_ns for p in asked.output.rglob("seed-*/*")} == files
    assert "4 of 4 cells are finished already." in stage.said
    assert [row.standing.mean for row in rows] == [3.5, 1.25]


def test_where_and_on_what_a_cell_ran_does_not_count(stage: Stage, tmp_path: Path) -> None:
    stage.run(plan(tmp_path, device="cpu"))
    stage.run(plan(tmp_path, device="auto", tracking="tensorboard"))
    assert stage.started == []


def test_more_seeds_are_added(stage: Stage, tmp_path: Path) -> None:
    stage.run(plan(tmp_path, seeds=(0,)))
    stage.run(plan(tmp_path))
    assert stage.started == [("fedul", 1), ("supervised", 1)]
    assert stage.titles[-2] == "cell 3 of 4: FedUL, seed 1, about 40 s left"


def test_what_is_saved(stage: Stage, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    stage.run(asked)
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
- Bold: the lowest mean, and those that a two-sided paired t-test over seeds at 5 % does not tell \
apart from it (p is the test's). The fewer seeds, the less it tells apart.

## Conditions

- Clients: 4
- Seeds: 0, 1
- Settings of all runs: `num-rounds = 2`
- FedUL: `method = "fedul"`
- All \\| labels: `method = "supervised"`
- Time and traffic are means per training; all other settings have their defaults.
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
    cells = table(asked.output / "cells.csv")
    assert cells[1] == {
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
        "directory": "all-labels/seed-0",
    }
    assert (asked.output / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_comparison_goes_on(stage: Stage, tmp_path: Path) -> None:
    asked = plan(tmp_path)
    stage.failing = {("fedul", 1): KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        stage.run(asked)
    assert [row["status"] for row in table(asked.output / "cells.csv")] == [
        "finished",
        "finished",
        "interrupted",
        "to do",
    ]
    stage.failing = {}
    stage.run(plan(tmp_path))
    assert stage.started == [("fedul", 1), ("supervised", 1)]
    resumed = stage.configs[-2]
    assert resumed.resume == resumed.output == str(asked.cells[2].directory)
    assert stage.configs[-1].resume == ""


@pytest.mark.parametrize(
    ("error", "reason"),
    [(UserError("No\nmemory."), "No memory."), (ValueError("odd"), "ValueError: odd")],
)
def test_a_failing_cell_loses_no_other_and_is_tried_again(
    stage: Stage, tmp_path: Path, error: Exception, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = plan(tmp_path)
    stage.failing = {("fedul", 0): error, ("fedul", 1): error}
    rows = stage.run(asked)
    assert len(stage.started) == 4
    assert [row.failed for row in rows] == [2, 0]
    assert (texts(rows[0])[1], texts(rows[0])[-1]) == ("failed", "0 of 2")
    assert (asked.cells[0].directory / "error.txt").read_text().split() == reason.split()
    print_table(asked, rows)
    for text in (capsys.readouterr().out, (asked.output / "comparison.md").read_text()):
        assert f"Failed: FedUL, seed 0: {reason}" in text
        assert "There was no test" in text
    stage.failing = {}
    rows = stage.run(plan(tmp_path))
    assert stage.started == [("fedul", 0), ("fedul", 1)]
    assert [row.failed for row in rows] == [0, 0]


def test_a_run_with_a_failed_seed_is_compared_over_the_others(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method, error in (("fedul", 5.0), ("supervised", 2.0)):
        monkeypatch.setitem(ERRORS, (method, 2), error)
    stage.failing = {("fedul", 1): UserError("Lost.")}
    asked = plan(tmp_path, seeds=(0, 1, 2))
    rows = stage.run(asked)
    assert (rows[0].standing.seeds, texts(rows[0])[-1]) == ((0, 2), "2 of 3")
    text = (asked.output / "comparison.md").read_text()
    assert "FedUL was tested against All \\| labels over the seeds that both have: 0, 2." in text
    assert "Failed: FedUL, seed 1: Lost." in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.5}, r"fedul/seed-0 was run with learning-rate = 0.003, not 0.5"),
        ({"num_rounds": 1}, "num-rounds = 2, not 1"),
        ({"clients": 5}, "num-supernodes = 4, not 5"),
        ({"selection": "last"}, "selection = 'validation', not 'last'"),
        ({"runs": {"FedUL": {"method": "supervised"}}}, "method = 'fedul', not 'supervised'"),
    ],
)
def test_changed_settings_are_refused(
    stage: Stage, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    stage.run(plan(tmp_path))
    with pytest.raises(UserError, match=f"{words}: name another --output"):
        stage.run(plan(tmp_path, **changes))
    assert stage.started == []


def test_a_setting_that_is_no_more_keeps_nothing_from_going_on(
    stage: Stage, tmp_path: Path
) -> None:
    stage.failing = {("supervised", 0): KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        stage.run(plan(tmp_path, seeds=(0,)))
    for cell in plan(tmp_path, seeds=(0,)).cells:
        file = cell.directory / "config.json"
        saved = json.loads(file.read_text())
        saved["settings"]["of-yesterday"] = 1
        file.write_text(json.dumps(saved))
    stage.failing = {}
    stage.run(plan(tmp_path, seeds=(0,)))
    assert stage.started == [("supervised", 0)]
    assert stage.configs[-1].resume


def test_a_run_that_has_spent_its_privacy_budget_is_finished(stage: Stage, tmp_path: Path) -> None:
    cells = plan(tmp_path, {"FedUL": RUNS["FedUL"]}, (0,))
    stage.run(cells)
    file = cells.cells[0].directory / "summary.json"
    cut = {**json.loads(file.read_text()), "rounds": 1}
    for exhausted, started in ((True, []), (False, [("fedul", 0)])):
        file.write_text(json.dumps({**cut, "budget_exhausted": exhausted}))
        stage.run(cells)
        assert stage.started == started


def test_more_rounds_resume_finished_cells(stage: Stage, tmp_path: Path) -> None:
    stage.run(plan(tmp_path))
    stage.run(plan(tmp_path, num_rounds=30))  # the default, which plain resuming cannot tell
    assert len(stage.started) == 4
    assert {config.num_rounds for config in stage.configs[4:]} == {30}
    assert all(config.resume for config in stage.configs[4:])
    stage.run(plan(tmp_path, num_rounds=30))
    assert stage.started == []


def test_a_cell_without_a_trained_round_starts_anew(stage: Stage, tmp_path: Path) -> None:
    stage.run(plan(tmp_path, seeds=(0,)))
    cell = plan(tmp_path).cells[0].directory
    (cell / "last.safetensors").unlink()
    (cell / "summary.json").unlink()
    stage.run(plan(tmp_path, seeds=(0,)))
    assert stage.started == [("fedul", 0)]
    assert stage.configs[-1].resume == ""


def test_an_unknown_test_error_does_not_count(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(tmp_path, seeds=(0,))
    stage.run(asked)
    file = asked.cells[1].directory / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"test_error": None}))
    rows = stage.run(asked)
    assert [row.standing.marked for row in rows] == [True, False]
    assert texts(rows[1])[1] == "–"
    text = (asked.output / "comparison.md").read_text()
    assert "No test error was measured in the best round of: All \\| labels, seed 0." in text


def test_other_splits_are_in_the_table(stage: Stage, tmp_path: Path) -> None:
    runs = {"FedUL": {}, "All": {"method": "supervised", "validation-fraction": 0.1}}
    asked = plan(tmp_path, runs, seeds=(0,))
    stage.run(asked)
    assert (
        "- The runs do not share their data splits, validation-fraction differs: "
        "0.2 for FedUL; 0.1 for All." in (asked.output / "comparison.md").read_text()
    )
