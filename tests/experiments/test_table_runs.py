"""Earlier results and runs of a table, and runs that others start from.

Training is replaced, except in the test of a run that resumes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.experiments.trial import changes
from tests.support.digits_table import (
    RESULTS,
    change_run,
    change_table,
    invoke,
    output_of,
    render,
    start_from_another,
    stored_runs,
)
from tests.support.refusals import refuses

MINI = ("mini/table-1", "--device", "cpu")
ONE = (*MINI, "--columns", "M=10", "--rows", "all labels")


@pytest.fixture
def ran(digits_table: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Replace training: the n-th run has the test error n. Column M=10 starts from another run."""
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
    start_from_another(learning_rate=0.25)
    return configs


def write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))


def places(configs: list[RunConfig]) -> list[str]:
    return ["start" if "/reproduce/start/" in run.output else "trial" for run in configs]


def test_a_failed_start_stops_runs(ran: list[RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulation.run_in_process

    def half(config: RunConfig, clients: int, **options: Any) -> None:
        whole(config, clients, **options)
        (Path(config.output) / "summary.json").unlink()
        raise RuntimeError("disk full")

    monkeypatch.setattr(simulation, "run_in_process", half)
    failed = invoke("reproduce", *ONE)
    assert failed.exit_code == 1
    assert places(ran) == ["start"]
    assert "1 not run: " in output_of(failed)
    assert not Path("results").exists()

    monkeypatch.setattr(simulation, "run_in_process", whole)
    assert invoke("reproduce", *ONE).exit_code == 0
    assert places(ran[1:]) == ["start", "trial"]
    assert len(stored_runs()) == 1


def test_given_a_directory_of_other_settings_then_it_starts_again(ran: list[RunConfig]) -> None:
    assert invoke("reproduce", *ONE).exit_code == 0
    assert places(ran) == ["start", "trial"]
    assert not list(Path("runs").rglob("comparison.md"))

    # The start's settings are settings of what starts from it.
    change_table("'learning-rate': 0.25", "'learning-rate': 0.5")
    again = invoke("reproduce", *ONE)
    assert again.exit_code == 0, again.output
    assert places(ran[2:]) == ["start", "trial"]
    note = "an earlier run had other settings or files; it starts again."
    assert output_of(again).count(note) == 2
    (kept,) = stored_runs()
    assert (kept["settings"]["start-from:learning-rate"], kept["test_error"]) == (0.5, 4)

    # What is finished is taken on another device too.
    RESULTS.unlink()
    assert invoke("reproduce", *ONE[:1], *ONE[3:]).exit_code == 0
    assert len(ran) == 4
    assert stored_runs() == [kept]


def test_given_picked_rows_and_seeds_then_no_other_is_checked(ran: list[RunConfig]) -> None:
    other = (*MINI, "--columns", "M=12", "--rows", "all labels")
    for seed in ("0", "1"):
        assert invoke("reproduce", *other, "--seeds", seed).exit_code == 0
    assert invoke("reproduce", *ONE).exit_code == 0
    settings = stored_runs()[1]["settings"]
    change_run(1, settings={**settings, "l1": 0.1})  # column M=12, seed 0
    shown = invoke("reproduce", *other, "--seeds", "1")
    assert shown.exit_code == 0, shown.output
    assert "2.00, 1 seed" in output_of(shown)
    assert "M=10" not in output_of(shown)
    with refuses("result-of-other-settings", match="'M=12', seed 0"):
        render()
    # Its run still lies there: it is taken again.
    assert len(ran) == 4
    assert invoke("reproduce", *other).exit_code == 0
    assert len(ran) == 4
    assert stored_runs()[1]["settings"] == settings


def test_what_changed_since_a_run() -> None:
    def changed(then: dict[str, Any], now: dict[str, Any], **files: str) -> str:
        old = {"settings": then, "content": {"model": "1"} if files else {}}
        return changes(old, {"settings": now, "content": files})

    then = {"method": "xclp-predict", "l1": 0.5, "start-from:l1": 0.0}
    assert changed(then, {**then, "start-from:l1": 0.25}) == "start-from:l1 was 0.0, is 0.25"
    # A setting that is newer than the run had its default; one that is gone is a difference.
    assert changed({}, {"momentum": 0.0}) == ""
    assert changed({}, {"momentum": 0.9}) == "momentum was 0.0, is 0.9"
    assert changed({"start-from:no.more": 1}, {}) == "start-from:no.more was 1, is None"
    assert changed({}, {}, dataset="1", model="2") == "model has another content"
