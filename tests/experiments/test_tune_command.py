"""``fedul-flwr tune`` on a miniature table of digits, and runs with the chosen settings."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from optuna.trial import create_trial

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.experiments.studies import best_of, chosen_settings, read_studies, state_of
from tests.support.digits_table import change_table, invoke, output_of, render, stored_runs
from tests.support.patience import PATIENCE, wait_until
from tests.support.refusals import code_of, refuses

MINI = ("mini/table-1", "--device", "cpu")
COLUMN = (*MINI, "--columns", "M=10")
FOUND = Path("results/mini/table-1.search.jsonl")
FEDUL, LABELS = "full / M=10 / FedUL", "full / M=10 / all labels"


def tried(name: str, file: Path = FOUND) -> list[Any]:
    """State, value and settings of the trials of a study."""
    trials = read_studies(file)[name].trials
    return [(state_of(one), one.value, one.user_attrs["settings"]) for one in trials]


def test_given_a_search_then_its_choice_runs(digits_table: Path, ran: list[RunConfig]) -> None:
    first = invoke("tune", *COLUMN)
    assert first.exit_code == 0, first.output
    assert len(ran) == 6
    assert {config.measure_test_error for config in ran} == {False}
    for row in ("FedUL", "all labels"):
        for number in (1, 2, 3):
            assert first.output.count(f"M=10, {row}: trial {number} of 3, ") == 1
    assert "test error" not in first.output
    studies = read_studies(FOUND)
    assert list(studies) == [FEDUL, LABELS]
    found = tried(FEDUL)
    assert [settings for *_, settings in found] == [settings for *_, settings in tried(LABELS)]
    assert found[0][2] == {}
    about = studies[FEDUL].user_attrs
    assert (about["row"], about["column"], about["seeds"]) == ("FedUL", "M=10", [0])
    assert about["definition"]["settings"]["num-supernodes"] == 3
    assert about["origin"]["versions"]["flwr"]
    best = best_of(studies[FEDUL])
    assert best is not None
    assert best.value == min(value for state, value, _ in found if state == "complete")
    assert "the experiment's" in first.output  # the table of trials
    assert str(digits_table) not in FOUND.read_text()
    for metrics in Path("runs/tune").rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        assert {line["test_error"] for line in lines} == {None}
        assert all(line["validation_error"] is not None for line in lines)

    # Nothing is run or changed by the same command.
    ran.clear()
    assert invoke("tune", *COLUMN).exit_code == 0
    assert ran == []
    assert tried(FEDUL) == found

    # Its seed is refused, others run with what it chose, apart from untuned results.
    refused = invoke("reproduce", *COLUMN, "--tuned")
    assert refused.exit_code == 1
    assert code_of(refused.output) == "option-not-allowed"
    assert ran == []
    tuned = invoke("reproduce", *COLUMN, "--tuned", "--seeds", "1,2")
    assert tuned.exit_code == 0, tuned.output
    assert [(config.method, config.seed) for config in ran] == [
        ("fedul", 1), ("supervised", 1), ("fedul", 2), ("supervised", 2),
    ]  # fmt: skip
    assert {config.measure_test_error for config in ran} == {True}
    chosen = chosen_settings(studies[FEDUL])
    assert chosen is not None
    assert ran[0].to_flat() | chosen == ran[0].to_flat()
    assert stored_runs() == []
    runs = stored_runs(tuned=True)
    assert invoke("reproduce", *COLUMN, "--rows", "FedUL").exit_code == 0

    page = render()
    assert "| full | difference | full, tuned |" in page
    errors = [run["test_error"] for run in runs if run["row"] == "FedUL"]
    # Of two seeds s/sqrt(2) is half of their distance, and the quantile of t 12.706.
    half = 12.7062 * abs(errors[0] - errors[1]) / 2
    assert f"| {np.mean(errors):.2f} ± {half:.2f} ({np.std(errors, ddof=1):.2f}), 2 seeds |" in page
    assert "results/mini/table-1.search.jsonl" in page
    assert f"validation error (%): {best.value:.4g} | 3: " in page

    # A search that chooses something else makes tuned runs stale, as changed settings do.
    study = read_studies(FOUND)[FEDUL]
    study.add_trial(create_trial(value=0.0, user_attrs={"settings": {**chosen, "l1": 0.5}}))
    with refuses("result-of-other-settings", match="l1 was 0.0, is 0.5"):
        render()


def test_searches_that_cannot_be_used_are_refused(digits_table: Path, ran: list[RunConfig]) -> None:
    asked = (*COLUMN, "--rows", "all labels")

    def refusal(seeds: str = "1") -> Any:
        return invoke("reproduce", *asked, "--tuned", "--seeds", seeds)

    assert code_of(refusal().output) == "search-missing"
    for seed in ("0", "7"):
        assert invoke("tune", *asked, "--trials", "1", "--seed", seed).exit_code == 0
    assert read_studies(FOUND)[LABELS].user_attrs["seeds"] == [0, 7]
    assert code_of(refusal("3,0").output) == "option-not-allowed"

    change_table('"num-rounds": 2', '"num-rounds": 2, "batch-size": 32')
    refused = refusal()
    assert code_of(refused.output) == "result-of-other-settings"
    assert "batch-size was 'auto', is 32" in output_of(refused)
    ran.clear()
    assert invoke("tune", *asked, "--trials", "1").exit_code == 0
    assert [config.batch_size for config in ran] == [32]
    FOUND.write_text('{"row": "FedUL"}\n[]\n')
    assert code_of(refusal().output) == "result-file-wrong"


def test_rows_that_train_alike_share_a_search(digits_table: Path, ran: list[RunConfig]) -> None:
    change_table("unranked=[],", 'chosen_with={"last head": "FedUL"},')
    change_table("columns(quick):", "columns(quick, ROWS={**ROWS, 'last head': {'l1': 0.5}}):")
    assert invoke("tune", *COLUMN, "--trials", "2").exit_code == 0
    assert list(read_studies(FOUND)) == [FEDUL, LABELS]
    read_studies(FOUND)[FEDUL].add_trial(
        create_trial(value=0.0, user_attrs={"settings": {"learning-rate": 0.02}})
    )
    ran.clear()
    done = invoke("reproduce", *COLUMN, "--tuned", "--seeds", "1", "--rows", "FedUL,last head")
    assert done.exit_code == 0, done.output
    assert [(config.learning_rate, config.l1) for config in ran] == [(0.02, 0.0), (0.02, 0.5)]
    searched = invoke("tune", *COLUMN, "--rows", "last head")
    assert code_of(searched.output) == "unknown-name"


def test_a_search_of_ones_own(digits_table: Path, ran: list[RunConfig]) -> None:
    file = Path("my_search.py")
    file.write_text(
        "from fedul_flwr.experiments.search_space import Search\n"
        'SEARCH = Search(trials=2, seeds=1, space={"a": [{}, {"l1": 0.25}]})\n'
    )
    done = invoke("tune", *COLUMN, "--rows", "FedUL", "--search", str(file))
    assert done.exit_code == 0, done.output
    assert [config.l1 for config in ran] == [0.0, 0.25]


def test_no_trial_reads_the_test_set(digits_table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedul_flwr.run import evaluation

    read: list[int] = []
    real = evaluation._points

    def points(data: Any, rows: Any) -> Any:
        read.append(len(rows))
        return real(data, rows)

    monkeypatch.setattr(evaluation, "_points", points)
    (digits_table / "runs.toml").write_text('[A]\nmethod = "supervised"\n')
    given = ("-c", 'num-rounds=1 model="mlp" points-per-client=50', "--num-supernodes", "2")
    assert invoke("tune", "--runs", "runs.toml", *given, "--trials", "1").exit_code == 0
    assert len(read) == 2  # validation alone, with two seeds
    read.clear()
    given = (*given, "--engine", "in-process", "--seeds", "1")
    assert invoke("compare", "--runs", "runs.toml", *given).exit_code == 0
    assert len(read) == 2


def test_heldout_losses_choose_without_labels(digits_table: Path, ran: list[RunConfig]) -> None:
    refused = invoke("tune", *COLUMN, "--criterion", "heldout")
    assert refused.exit_code == 1
    assert code_of(refused.output) == "method-mismatch"
    assert "'supervised'" in output_of(refused)
    asked = (*COLUMN, "--rows", "FedUL")
    done = invoke("tune", *asked, "--criterion", "heldout", "--trials", "1")
    assert done.exit_code == 0, done.output
    assert "held-out loss " in done.output
    assert [config.selection for config in ran] == ["heldout"]
    assert chosen_settings(read_studies(FOUND)[FEDUL]) == {"selection": "heldout"}
    ran.clear()
    assert invoke("reproduce", *asked, "--tuned", "--seeds", "1").exit_code == 0
    assert [config.selection for config in ran] == ["heldout"]


@pytest.mark.slow
def test_given_two_jobs_then_the_searches_are_those_of_one(digits_table: Path) -> None:
    asked = (*COLUMN, "--trials", "2")
    assert invoke("tune", *asked, "--results", "turn").exit_code == 0
    shutil.rmtree("runs/tune")
    done = invoke("tune", *asked, "--jobs", "2")
    assert done.exit_code == 0, done.output
    for name in (FEDUL, LABELS):
        assert tried(name) == tried(name, Path("turn") / FOUND.relative_to("results"))


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_given_the_end_of_the_first_then_all_end(digits_table: Path, end: signal.Signals) -> None:
    words = [sys.executable, "-m", "fedul_flwr.cli.main", "tune", *COLUMN, "--jobs", "2"]
    words += ["--experiments", "experiments"]
    change_table("rungs=1", "rungs=0")
    change_table('"num-rounds": 2', '"num-rounds": 3000')
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        metrics = Path("runs/tune")
        started = wait_until(
            lambda: list(metrics.rglob("metrics.jsonl")), PATIENCE, "a trial's start"
        )
        assert first.poll() is None
        others = psutil.Process(first.pid).children(recursive=True)
        assert started
        assert len(others) >= 2
        first.send_signal(end)
        first.wait(60)
    _, alive = psutil.wait_procs(others, timeout=60)
    assert alive == []


RUNS = '[FedUL]\nmethod = "fedul"\n\n["All labels"]\nmethod = "supervised"\n'
SETTINGS = 'num-rounds=2 model="mlp" points-per-client=150'


def test_compare_takes_the_chosen_settings(digits_table: Path, ran: list[RunConfig]) -> None:
    Path("runs.toml").write_text(RUNS)
    given = ("--runs", "runs.toml", "-c", SETTINGS, "--num-supernodes", "3")
    done = invoke("tune", *given, "--trials", "2")
    assert done.exit_code == 0, done.output
    file = Path("runs/tune-runs/search.jsonl")
    studies = read_studies(file)
    assert list(studies) == ["All labels", "FedUL"]
    ran.clear()
    compared = ("--tuned", str(file), "--engine", "in-process")
    refused = invoke("compare", *given, *compared)
    assert code_of(refused.output) == "option-not-allowed"
    assert ran == []
    done = invoke("compare", *given, *compared, "--seeds", "1")
    assert done.exit_code == 0, done.output
    for config, row in zip(ran, ("FedUL", "All labels"), strict=True):
        assert config.to_flat() | dict(chosen_settings(studies[row]) or {}) == config.to_flat()
        assert "compare-runs-tuned" in config.output
    other = invoke("compare", *given, "-c", "l1=0.1", *compared, "--seeds", "1")
    assert code_of(other.output) == "result-of-other-settings"
    assert "l1 was 0.0, is 0.1" in output_of(other)
    gone = invoke("compare", *given, "--tuned", "no.json", "--seeds", "1")
    assert code_of(gone.output) == "file-missing"


def test_a_run_of_ones_own_is_searched(digits_table: Path, ran: list[RunConfig]) -> None:
    """Its first trial learns nothing with such steps; the printed command has a better step."""
    given = ("-c", f"{SETTINGS} method=supervised learning-rate=1e-7", "--num-supernodes", "3")
    done = invoke("tune", *given, "--trials", "3")
    assert done.exit_code == 0, done.output
    study = read_studies(Path("runs/tune-supervised/search.jsonl"))["supervised"]
    assert len(study.trials) == 3
    chosen = chosen_settings(study)
    assert chosen is not None
    assert "learning-rate" in chosen
    words = shlex.split(done.output.splitlines()[-1])
    assert words[:2] == ["fedul-flwr", "run"]
    ran.clear()
    run = invoke(*words[1:], "--engine", "in-process", "--output", "best")
    assert run.exit_code == 0, run.output
    (config,) = ran
    assert config.to_flat() | {**chosen, "seed": 1} == config.to_flat()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([*MINI, "--runs", "runs.toml"], "options-contradict"),
        ([*MINI, "-c", "l1=0.1"], "option-without-effect"),
        (["--quick"], "option-without-effect"),
        ([*MINI, "--search", "no.py"], "file-missing"),
    ],
)
def test_wrong_arguments_are_refused(digits_table: Path, arguments: list[str], code: str) -> None:
    Path("runs.toml").write_text(RUNS)
    assert code_of(invoke("tune", *arguments).output) == code


def test_given_a_failed_trial_then_the_exit_code_is_1(
    digits_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = simulation.run_in_process

    def fail(config: RunConfig, clients: int, **options: Any) -> None:
        if config.weight_decay:
            raise RuntimeError("no memory")
        real(config, clients, **options)

    monkeypatch.setattr(simulation, "run_in_process", fail)
    done = invoke("tune", *COLUMN)
    assert done.exit_code == 1
    assert "failed: RuntimeError: no memory" in done.output
    for name in (FEDUL, LABELS):
        assert {"failed", "complete"} <= {state for state, *_ in tried(name)}
