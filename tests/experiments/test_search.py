"""The search of one row: trials stop early, resume, fail or are chosen. Training is replaced."""

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.experiments.search import DivergedError, RowSearch, Watch, run_search, run_watched
from fedul_flwr.experiments.search_space import Criterion, Search
from fedul_flwr.experiments.studies import best_of, read_studies, state_of
from fedul_flwr.experiments.trial import CLIENTS, Trial
from tests.support.fake_training import FakeSearchTraining
from tests.support.refusals import refuses
from tests.support.settings import Settings

CRITERION = Criterion("validation", "validation")
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSearchTraining:
    found = FakeSearchTraining()
    monkeypatch.setattr(simulation, "run_in_process", found)
    monkeypatch.chdir(tmp_path)
    return found


def task(
    tmp_path: Path,
    rates: tuple[float, ...] = RATES,
    factor: int = 2,
    rungs: int = 1,
    seeds: int = 1,
    **settings: Any,
) -> RowSearch:
    own = {"num-rounds": 4, "learning-rate": 3e-3}
    overrides = {**own, **{key.replace("_", "-"): v for key, v in settings.items()}}
    given = resolve(overrides, Path.cwd()).to_flat()
    config = resolve(overrides, Path.cwd())
    search = Search(
        trials=8,
        seeds=seeds,
        reduction_factor=factor,
        rungs=rungs,
        space={"step": [{"learning-rate": rate} for rate in rates]},
    )
    return RowSearch(
        trial=Trial("row", 0, tmp_path, config, {"learning-rate": 3e-3, CLIENTS: 3}),
        settings={key: value for key, value in given.items() if key != "output"},
        search=search,
        criterion=CRITERION,
        folder=tmp_path / "study",
        file=tmp_path / "search.jsonl",
    )


def run(asked: RowSearch, say: Any = lambda _: None) -> list[dict[str, Any]]:
    """Search, and return the trials of the study in their order, without their times."""
    run_search(asked, say)
    trials = read_studies(asked.file)["row"].trials
    return [
        {
            **trial.user_attrs,
            **{"state": state_of(trial), "value": trial.value},
            "reports": trial.intermediate_values,
        }
        for trial in sorted(trials, key=lambda one: one.user_attrs["position"])
    ]


def best(asked: RowSearch) -> Any:
    return best_of(read_studies(asked.file)["row"])


def tried(asked: RowSearch, trials: int = 8) -> list[float]:
    found = islice(asked.candidates(), trials)
    return [float(one.changes.get("learning-rate", 0.0)) for one in found]


def test_given_eight_trials_then_rungs_as_by_hand(runs: FakeSearchTraining, tmp_path: Path) -> None:
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
    records = run(asked)
    assert [record["state"] == "complete" for record in records] == goes_on
    assert [record["rounds"] for record in records] == [4 if on else 2 for on in goes_on]
    assert {record["state"] for record in records} == {"complete", "pruned"}
    assert records[1]["reports"] == {1: 12.0, 2: 12.0}
    chosen = best(asked)
    assert (chosen.number, chosen.value, chosen.user_attrs["round"]) == (6, 8.0, 1)
    assert chosen.user_attrs["settings"] == {"learning-rate": order[6]}


def test_given_two_rungs_then_worse_trials_stop(runs: FakeSearchTraining, tmp_path: Path) -> None:
    # Factor 3: rungs at 9/9 = 1 and 9/3 = 3. The second trial is better at 1 and worse at 3.
    asked = task(tmp_path, rates=RATES[:2], factor=3, rungs=2, num_rounds=9)
    order = tried(asked)
    runs.error = lambda rate, step: {order[0]: 5.0 - step / 10, order[1]: 4.85, order[2]: 7.0}[rate]
    records = run(asked)
    assert [record["rounds"] for record in records] == [9, 3, 1]


def test_given_no_evaluation_then_the_next_counts(runs: FakeSearchTraining, tmp_path: Path) -> None:
    # Rung at round 4 of 8; evaluated in rounds 3, 6 and 8.
    asked = task(tmp_path, num_rounds=8, evaluate_every=3)
    order = tried(asked)
    runs.error = lambda rate, step: float(order.index(rate))
    records = run(asked)
    assert records[1]["rounds"] == 6
    assert records[1]["reports"] == {3: 1.0, 6: 1.0}


def test_given_two_seeds_then_their_mean_counts(runs: FakeSearchTraining, tmp_path: Path) -> None:
    asked = task(tmp_path, seeds=2)
    order = tried(asked)
    # Trial 1 stops at the rung. Of the others the third is best with the first seed alone.
    with_first = dict(zip(order, [10.0, 12.0, 8.0, *[50.0] * 5], strict=True))
    with_second = {**with_first, order[2]: 13.0}
    runs.error_of_seed = {0: lambda rate, _: with_first[rate], 1000: lambda r, _: with_second[r]}
    records = run(asked)
    assert [record["values"] for record in records[:3]] == [[10.0, 10.0], [12.0], [8.0, 13.0]]
    assert [record["value"] for record in records[:3]] == [10.0, 12.0, 10.5]
    assert best(asked).number == 0
    assert {config.seed for config in runs.configs} == {0, 1000}


def test_given_a_warm_up_then_rungs_come_after_it(runs: FakeSearchTraining, tmp_path: Path) -> None:
    # 4 of 12 rounds are warm-up, so the rung is at 4 + 8 / 2 = 8 and not at 6.
    settings = {"method": "fedpl", "num_rounds": 12, "fedpl.warm_up_rounds": 4}
    asked = task(tmp_path, **settings)
    order = tried(asked)
    runs.error = lambda rate, step: float(order.index(rate))
    assert asked.warm_up == 4
    assert [record["rounds"] for record in run(asked)[:2]] == [12, 8]
    assert task(tmp_path, **{**settings, "fedpl.warm_up_rounds": 11}).warm_up == 6
    assert task(tmp_path, num_rounds=12).warm_up == 0


def test_given_diverged_trials_then_new_ones_run(runs: FakeSearchTraining, tmp_path: Path) -> None:
    runs.error = lambda rate, step: math.nan if rate in (0.1, 0.7) else 5.0
    asked = task(tmp_path, rates=tuple(n / 10 for n in range(1, 13)))
    records = run(asked)
    ended = [record for record in records if record["state"] != "diverged"]
    assert len(ended) == 8
    assert len(records) == 8 + sum(tried(asked, 12).count(rate) for rate in (0.1, 0.7))


def test_given_all_diverge_then_the_search_ends(runs: FakeSearchTraining, tmp_path: Path) -> None:
    runs.error = lambda rate, step: math.nan
    asked = task(tmp_path, rates=tuple(n / 100 for n in range(10, 60)))
    assert [record["state"] for record in run(asked)] == ["diverged"] * 16
    assert best(asked) is None


def test_given_an_interrupted_trial_then_it_resumes_and_the_records_are_those_without_interruption(
    runs: FakeSearchTraining, tmp_path: Path
) -> None:
    runs.error = lambda rate, step: 60 - 50 * rate + step / 7
    whole = run(task(tmp_path / "whole"))
    for position, step in ((0, 3), (2, 2), (5, 1)):
        folder = tmp_path / f"cut-{position}-{step}"
        asked = task(folder)
        rate = tried(asked)[position]
        runs.interrupted_at = (rate, step)
        with pytest.raises(KeyboardInterrupt):
            run(asked)
        runs.interrupted_at = None
        runs.started.clear()
        assert run(asked) == whole
        assert runs.started[0][:2] == (rate, step > 1)
        assert len(runs.started) == len(whole) - position


@pytest.mark.parametrize(
    "how", ["loss", "surrogate_loss", "heldout_loss", "validation_loss", "broken"]
)
def test_given_an_infinite_loss_or_weights_of_nan_then_the_trial_has_diverged_whatever_its_error(
    runs: FakeSearchTraining, tmp_path: Path, how: str
) -> None:
    runs.error = lambda rate, step: 1.0 if rate == 0.4 else 5.0
    if how == "broken":
        runs.broken = {0.4}
    else:
        runs.infinite = {0.4: how}
    asked = task(tmp_path)
    records = run(asked)
    assert [r["settings"] for r in records if r["state"] == "diverged"] == [{"learning-rate": 0.4}]
    assert not [r for r in records if r["state"] == "failed"]
    assert best(asked).value == 5.0


def test_given_a_failed_trial_then_it_is_repeated(runs: FakeSearchTraining, tmp_path: Path) -> None:
    runs.failing = {0.3}
    said: list[str] = []
    asked = task(tmp_path)
    records = run(asked, said.append)
    (failed,) = [record for record in records if record["state"] == "failed"]
    assert failed["reason"] == "RuntimeError: no memory"
    assert failed["value"] is None
    assert any("failed: RuntimeError: no memory" in line for line in said)
    assert len(records) == 8

    runs.failing = set()
    runs.started.clear()
    again = run(asked)
    assert [rate for rate, *_ in runs.started] == [0.3]
    assert next(r["state"] for r in again if r["position"] == failed["position"]) == "failed"
    assert len(again) == 9
    assert [r for r in again if r["position"] != failed["position"]] == [
        r for r in records if r is not failed
    ]


def test_given_more_trials_then_the_study_goes_on(runs: FakeSearchTraining, tmp_path: Path) -> None:
    asked = task(tmp_path)
    few = run(replace(asked, search=replace(asked.search, trials=3)))
    runs.started.clear()
    assert run(asked)[:3] == few
    assert len(runs.started) == 5


def test_given_a_running_search_then_no_other(runs: FakeSearchTraining, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    with FileLock(tmp_path / "study" / ".row.lock"), refuses("run-in-use"):
        run(task(tmp_path))
    assert len(run(task(tmp_path))) == 8


def test_given_another_searchs_files_then_they_go(runs: FakeSearchTraining, tmp_path: Path) -> None:
    run(task(tmp_path))
    runs.started.clear()
    run(task(tmp_path, rungs=0))
    assert len(runs.started) == 8


def test_given_ended_trials_then_their_models_go(runs: FakeSearchTraining, tmp_path: Path) -> None:
    run(task(tmp_path))
    left = {path.name for path in (tmp_path / "study" / "row").rglob("*") if path.is_file()}
    kept = "definition.json", "config.json", "metrics.jsonl", "summary.json"
    assert left == {*kept}


@pytest.mark.parametrize(
    "method", [{"method": "given-labels"}, {"method": "fedmatch", "fedmatch.l2-weight": 0.0}]
)
def test_given_a_client_whose_loss_is_infinite_then_the_trial_has_diverged(
    settings: Settings, method: dict[str, Any]
) -> None:
    steep = {"optimizer": "sgd", "learning-rate": 1e30, "labels.total": 60}
    with pytest.raises(DivergedError):
        run_watched(settings(**method, **steep), 3, Watch(CRITERION))
