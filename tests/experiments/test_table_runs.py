"""What earlier calls of ``fedul-flwr reproduce`` left, and runs that others start from.

Training is replaced but for the test of a run that goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from tests.experiments.test_reproduce_command import MINI, change, reproduce, results, said
from tests.support.digits_table import change_table, start_from_another

ONE = (*MINI, "--columns", "M=10", "--rows", "all labels")


@pytest.fixture
def ran(digits_table: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Runs in place of training: their test error counts them. Column M=10 starts from another."""
    configs: list[RunConfig] = []

    def run(config: RunConfig, clients: int, **options: Any) -> None:
        configs.append(config)
        directory = Path(config.output)
        write(directory / "config.json", {"settings": config.to_flat(), "data": {}})
        (directory / "last.safetensors").touch()
        metrics = {"round": 2, "test_error": float(len(configs))}
        write(directory / "metrics.jsonl", metrics)
        write(directory / "summary.json", {"rounds": 2, "test_error": float(len(configs))})

    monkeypatch.setattr(simulation, "run_in_process", run)
    start_from_another("learning-rate = 0.25")
    return configs


def write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))


def places(configs: list[RunConfig]) -> list[str]:
    return ["start" if "/reproduce/start/" in run.output else "cell" for run in configs]


def test_a_start_that_failed_keeps_others_from_running(
    ran: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulation.run_in_process

    def half(config: RunConfig, clients: int, **options: Any) -> None:
        whole(config, clients, **options)
        (Path(config.output) / "summary.json").unlink()
        raise RuntimeError("disk full")

    monkeypatch.setattr(simulation, "run_in_process", half)
    failed = reproduce(*ONE)
    assert failed.exit_code == 1
    assert places(ran) == ["start"]
    assert "1 not run: the run that they start from failed." in said(failed)
    assert not Path("results").exists()

    monkeypatch.setattr(simulation, "run_in_process", whole)
    assert reproduce(*ONE).exit_code == 0
    assert places(ran[1:]) == ["start", "cell"]
    assert len(results()) == 1


def test_what_has_other_settings_starts_anew(ran: list[RunConfig]) -> None:
    assert reproduce(*ONE).exit_code == 0
    assert places(ran) == ["start", "cell"]
    assert not list(Path("runs").rglob("comparison.md"))

    # The start's settings are settings of what starts from it.
    change_table("learning-rate = 0.25", "learning-rate = 0.5")
    again = reproduce(*ONE)
    assert again.exit_code == 0, again.output
    assert places(ran[2:]) == ["start", "cell"]
    assert said(again).count("is not of these settings, it starts anew.") == 2
    (kept,) = results()
    assert (kept["settings"]["start-from:learning-rate"], kept["figures"]["test_error"]) == (0.5, 4)

    # What is finished is taken on another device too.
    Path("results/mini/table-1.json").unlink()
    assert reproduce(*ONE[:1], *ONE[3:]).exit_code == 0
    assert len(ran) == 4
    assert results() == [kept]


def test_a_run_goes_on_with_another_device(
    digits_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = simulation.run_in_process

    def half(config: RunConfig, clients: int, **options: Any) -> None:
        real(config.model_copy(update={"num_rounds": 1}), clients, **options)
        (Path(config.output) / "summary.json").unlink()
        raise KeyboardInterrupt

    resumed: list[str] = []

    def rest(config: RunConfig, clients: int, **options: Any) -> None:
        resumed.append(config.resume)
        real(config, clients, **options)

    monkeypatch.setattr(simulation, "run_in_process", half)
    cell = ("mini/table-1", "--columns", "M=10", "--rows", "all labels")
    assert reproduce(*cell).exit_code != 0
    monkeypatch.setattr(simulation, "run_in_process", rest)
    done = reproduce(*cell, "--device", "cpu")
    assert done.exit_code == 0, done.output
    (directory,) = Path("runs").rglob("seed-0")
    assert resumed == [str(directory.resolve())]
    assert json.loads((directory / "config.json").read_text())["settings"]["device"] == "cpu"
    assert results()[0]["curve"]["rounds"] == [1, 2]


def test_only_what_is_picked_is_checked_and_shown(ran: list[RunConfig]) -> None:
    other = (*MINI, "--columns", "M=12", "--rows", "all labels")
    for seed in ("0", "1"):
        assert reproduce(*other, "--seeds", seed).exit_code == 0
    assert reproduce(*ONE).exit_code == 0
    figures = results()[1]["figures"]
    change(1, figures={**figures, "test_error": 0.1})  # column M=12, seed 0
    shown = reproduce(*other, "--seeds", "1")
    assert shown.exit_code == 0, shown.output
    assert "2.00, 1 seed" in said(shown)
    assert "M=10" not in said(shown)
    refused = reproduce("--render")
    assert refused.exit_code == 1
    assert "column 'M=12', seed 0 does not have the hash of its figures, it was edited" in said(
        refused
    )
    # Its run still lies there: it is taken again.
    assert len(ran) == 4
    assert reproduce(*other).exit_code == 0
    assert len(ran) == 4
    assert results()[1]["figures"] == figures


def test_a_result_without_a_key_is_refused(ran: list[RunConfig]) -> None:
    assert reproduce(*ONE).exit_code == 0
    change(0, curve=None)
    for arguments in (("--render",), ONE, ("--list",)):
        refused = reproduce(*arguments)
        assert refused.exit_code == 1
        assert "table-1.json, run 1: key 'curve' is missing or of a wrong type." in said(refused)


def test_the_warning_of_days_needs_something_to_run(ran: list[RunConfig]) -> None:
    assert "hours to days" in said(reproduce(*ONE))
    assert "hours to days" not in said(reproduce(*ONE))
