"""The trials of one row: which end early, what goes on, what wins. Training is replaced."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Criterion
from fedul_flwr.experiments.row_search import StudyTask, best_of, run_study
from fedul_flwr.experiments.search_space import Search
from fedul_flwr.results.store import RunDirectory

RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
Error = Callable[[float, int], float]


class Runs:
    """Runs in place of training, by ``error(learning rate, round)``; rate 0 is the own settings."""

    def __init__(self) -> None:
        self.error: Error = lambda rate, step: 100 * rate
        self.interrupted_at: tuple[float, int] | None = None
        self.failing: set[float] = set()
        self.broken: set[float] = set()
        """Rates whose weights are no numbers after round 1, so that round 2 fails."""
        self.started: list[tuple[float, bool, int]] = []
        """Rate, whether it resumed, and the last round that it reached."""
        self.configs: list[RunConfig] = []

    def __call__(self, config: RunConfig, clients: int, *, watch: Any) -> None:
        directory = Path(config.output)
        directory.mkdir(parents=True, exist_ok=True)
        metrics = directory / "metrics.jsonl"
        old = metrics.read_text().splitlines() if config.resume else []
        lines = [json.loads(line) for line in old]
        rate = 0.0 if config.learning_rate == 3e-3 else config.learning_rate
        self.configs.append(config)
        self.started.append((rate, bool(config.resume), len(lines)))
        (directory / "config.json").write_text(
            json.dumps({"settings": config.to_flat(), "data": {}})
        )
        if lines:
            watch(lines)
        for step in range(len(lines) + 1, config.num_rounds + 1):
            if self.interrupted_at == (rate, step):
                raise KeyboardInterrupt
            if rate in self.failing or (rate in self.broken and step > 1):
                raise RuntimeError("no memory")
            error = self.error(rate, step) if config.is_evaluated(step) else None
            line = {
                "round": step,
                "validation_error": error,
                "loss": error if error is not None and math.isnan(error) else 1.0,
                "test_error": -1000.0 * rate,
                "seconds": 2.0,
            }
            lines.append(line)
            metrics.write_text("".join(json.dumps(one) + "\n" for one in lines))
            weight = np.array([math.nan if rate in self.broken else 1.0])
            RunDirectory(directory).save_model("last.safetensors", {"weight": weight}, line)
            self.started[-1] = (rate, bool(config.resume), step)
            watch(lines)
        (directory / "summary.json").write_text("{}")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    found = Runs()
    monkeypatch.setattr(simulation, "run_in_process", found)
    monkeypatch.chdir(tmp_path)
    return found


def task(
    tmp_path: Path,
    rates: tuple[float, ...] = RATES,
    factor: int = 2,
    rungs: int = 1,
    selection: str = "validation",
    identity: str = "one",
    **settings: Any,
) -> StudyTask:
    overrides = {"num-rounds": 4, **{key.replace("_", "-"): v for key, v in settings.items()}}
    given = resolve(overrides, Path.cwd()).to_flat()
    space = {"step": tuple({"learning-rate": rate} for rate in rates)}
    return StudyTask(
        "row", "", {k: v for k, v in given.items() if k != "output"}, 3, tmp_path / "study",
        Search(8, factor, rungs, {}, space), Criterion("validation", selection), 0, identity,
    )  # fmt: skip


def tried(asked: StudyTask) -> list[float]:
    return [float(one.changes.get("learning-rate", 0.0)) for one in asked.candidates()]


def nothing(_: str) -> None:
    """Says nothing."""


def test_who_goes_on_after_a_rung_by_hand(runs: Runs, tmp_path: Path) -> None:
    asked = task(tmp_path)
    order = tried(asked)
    assert sorted(order) == [0.0, *RATES]
    # Rung at round 2 of 4. In the order of trials, with the best ⌊n/2⌋ of n (at least 1) going on:
    values = [10.0, 12.0, 9.0, 9.5, 11.0, 9.4, 8.0, 9.45]
    # 10 goes on alone; 12 is second of 2; 9 is first of 3; 9.5 is second of 4; 11 is fourth of 5;
    # 9.4 is second of 6; 8 is first of 7; 9.45 is fourth of 8, of whom four go on.
    goes_on = [True, False, True, True, False, True, True, True]
    error = dict(zip(order, values, strict=True))
    runs.error = lambda rate, step: error[rate]
    records = run_study(asked, nothing)
    assert [record["state"] == "complete" for record in records] == goes_on
    assert [record["rounds"] for record in records] == [4 if on else 2 for on in goes_on]
    assert {record["state"] for record in records} == {"complete", "pruned"}
    assert records[1]["reports"] == {"1": 12.0, "2": 12.0}
    best = best_of(records)
    assert best is not None
    assert (best["trial"], best["value"], best["round"]) == (6, 8.0, 1)
    assert best["settings"] == {"learning-rate": order[6]}


def test_two_rungs_of_nine_rounds(runs: Runs, tmp_path: Path) -> None:
    # Factor 3: rungs at 9/9 = 1 and 9/3 = 3. The second trial is better at 1 and worse at 3.
    asked = task(tmp_path, rates=RATES[:2], factor=3, rungs=2, num_rounds=9)
    order = tried(asked)
    runs.error = lambda rate, step: {order[0]: 5.0 - step / 10, order[1]: 4.85, order[2]: 7.0}[rate]
    records = run_study(asked, nothing)
    assert [record["rounds"] for record in records] == [9, 3, 1]


def test_without_rungs_all_trials_end(runs: Runs, tmp_path: Path) -> None:
    records = run_study(task(tmp_path, rungs=0), nothing)
    assert {record["state"] for record in records} == {"complete"}


def test_a_trial_is_judged_at_the_first_evaluation_from_the_rung_on(
    runs: Runs, tmp_path: Path
) -> None:
    # Rung at round 4 of 8; evaluated in rounds 3, 6 and 8.
    asked = task(tmp_path, num_rounds=8, evaluate_every=3)
    order = tried(asked)
    runs.error = lambda rate, step: float(order.index(rate))
    records = run_study(asked, nothing)
    assert records[1]["rounds"] == 6
    assert records[1]["reports"] == {"3": 1.0, "6": 1.0}


def test_a_round_before_the_rung_is_kept_if_the_run_keeps_it(runs: Runs, tmp_path: Path) -> None:
    runs.error = lambda rate, step: 10.0 * step
    by_validation = run_study(task(tmp_path), nothing)[0]
    assert (by_validation["value"], by_validation["round"]) == (10.0, 1)
    last = task(tmp_path, selection="last", identity="two")
    by_last = run_study(last, nothing)[0]
    assert (by_last["value"], by_last["round"]) == (40.0, 4)


def test_of_equals_the_earliest_wins(runs: Runs, tmp_path: Path) -> None:
    runs.error = lambda rate, step: 3.0
    records = run_study(task(tmp_path), nothing)
    assert {record["state"] for record in records} == {"complete"}  # ties are not worse
    best = best_of(records)
    assert best is not None
    assert best["trial"] == 0


def test_trials_measure_no_test_error(runs: Runs, tmp_path: Path) -> None:
    run_study(task(tmp_path), nothing)
    assert {config.measure_test_error for config in runs.configs} == {False}
    assert {config.seed for config in runs.configs} == {0}


def test_what_ended_does_not_run_again(runs: Runs, tmp_path: Path) -> None:
    said: list[str] = []
    first = run_study(task(tmp_path), said.append)
    assert len(said) == len(runs.started) == 8
    runs.started.clear()
    assert run_study(task(tmp_path), said.append) == first
    assert runs.started == []


def test_the_same_seed_makes_the_same_search(runs: Runs, tmp_path: Path) -> None:
    runs.error = lambda rate, step: 50 * rate + step
    first, second = (run_study(task(tmp_path / name), nothing) for name in "ab")
    assert first == second


def test_an_interrupted_trial_goes_on_and_ends_as_if_it_had_not_been(
    runs: Runs, tmp_path: Path
) -> None:
    runs.error = lambda rate, step: 60 - 50 * rate + step / 7
    whole = run_study(task(tmp_path / "whole"), nothing)
    for position, step in ((0, 3), (2, 2), (5, 1)):
        folder = tmp_path / f"cut-{position}-{step}"
        asked = task(folder)
        rate = tried(asked)[position]
        runs.interrupted_at = (rate, step)
        with pytest.raises(KeyboardInterrupt):
            run_study(asked, nothing)
        runs.interrupted_at = None
        runs.started.clear()
        assert run_study(asked, nothing) == whole
        assert runs.started[0][:2] == (rate, step > 1)
        assert len(runs.started) == len(whole) - position


def test_a_run_that_was_over_when_it_was_cut_off_is_not_run_again(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_study(task(tmp_path / "whole"), nothing)

    def run_and_stop(*given: Any, **more: Any) -> None:
        runs(*given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "run_in_process", run_and_stop)
    asked = task(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        run_study(asked, nothing)
    monkeypatch.setattr(simulation, "run_in_process", runs)
    runs.started.clear()
    assert run_study(asked, nothing) == whole
    assert tried(asked)[0] not in [rate for rate, *_ in runs.started]


def test_a_diverged_trial_ends_at_once_and_cannot_win(runs: Runs, tmp_path: Path) -> None:
    runs.error = lambda rate, step: math.nan if rate > 0.5 else 5.0
    said: list[str] = []
    records = run_study(task(tmp_path), said.append)
    states = {record["settings"].get("learning-rate", 0.0): record for record in records}
    for rate in (0.6, 0.7):
        assert (states[rate]["state"], states[rate]["value"]) == ("diverged", None)
    assert {reached for rate, _, reached in runs.started if rate > 0.5} == {1}
    assert sum("diverged" in line for line in said) == 2
    best = best_of(records)
    assert best is not None
    assert best["value"] == 5.0


def test_a_run_that_fails_on_weights_that_are_no_numbers_has_diverged(
    runs: Runs, tmp_path: Path
) -> None:
    runs.error = lambda rate, step: 5.0
    runs.broken = {0.4}
    records = run_study(task(tmp_path), nothing)
    assert [r["settings"] for r in records if r["state"] == "diverged"] == [{"learning-rate": 0.4}]
    assert not [r for r in records if r["state"] == "failed"]


def test_a_failed_trial_is_named_others_run_and_it_is_tried_again(
    runs: Runs, tmp_path: Path
) -> None:
    runs.failing = {0.3}
    said: list[str] = []
    records = run_study(task(tmp_path), said.append)
    (failed,) = [record for record in records if record["state"] == "failed"]
    assert failed["reason"] == "RuntimeError: no memory"
    assert failed["value"] is None
    assert any("failed: RuntimeError: no memory" in line for line in said)
    assert len(records) == 8

    runs.failing = set()
    runs.started.clear()
    again = run_study(task(tmp_path), nothing)
    assert [rate for rate, *_ in runs.started] == [0.3]
    assert {record["state"] for record in again} <= {"complete", "pruned"}
    assert [r for r in again if r["trial"] != failed["trial"]] == [
        r for r in records if r is not failed
    ]


def test_two_processes_do_not_search_the_same_row(runs: Runs, tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".study.lock"),
        pytest.raises(UserError, match=r"Another search is at work in .*study: wait for its end"),
    ):
        run_study(task(tmp_path), nothing)
    assert len(run_study(task(tmp_path), nothing)) == 8


def test_what_is_left_of_another_search_is_removed(runs: Runs, tmp_path: Path) -> None:
    run_study(task(tmp_path), nothing)
    runs.started.clear()
    run_study(task(tmp_path, identity="another"), nothing)
    assert len(runs.started) == 8


def test_trials_that_have_ended_keep_no_models(runs: Runs, tmp_path: Path) -> None:
    run_study(task(tmp_path), nothing)
    left = {path.name for path in (tmp_path / "study").rglob("*") if path.is_file()}
    assert left == {*("search.sha256", "study.log", "config.json", "metrics.jsonl", "summary.json")}
