"""Comparisons with methods that label and do not train."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from tests.support.runs import summary

RUNS = """
["3 neighbors"]
method = "xclp-predict"
xclp.k = 3
["10 neighbors"]
method = "xclp-predict"
"""
OPTIONS = (
    *("--runs", "runs.toml", "--seeds", "0,1", "--num-supernodes", "3"),
    *("--engine", "in-process"),
)
QUICK = ("-c", 'labels.total=30 xclp.secure="plaintext"')


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.toml").write_text(RUNS)
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []
    real = simulation.run_in_process

    def count(config: RunConfig, clients: int, **options: Any) -> None:
        started.append(Path(config.output).relative_to(Path.cwd() / "out").as_posix())
        real(config, clients, **options)

    monkeypatch.setattr(simulation, "run_in_process", count)
    return started


def compare(*more: str) -> Any:
    return CliRunner().invoke(app, ["compare", *OPTIONS, *QUICK, "--output", "out", *more])


def test_given_two_settings_and_seeds_then_their_labels_are_compared(
    here: Path, ran: list[str]
) -> None:
    done = compare()
    assert done.exit_code == 0, done.output
    trials = [f"{run}-neighbors/seed-{seed}" for seed in (0, 1) for run in (3, 10)]
    assert ran == trials
    assert "3 neighbors, seed 0: error" in done.output
    assert "rounds" not in done.output
    with (here / "out" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["finished"] * 4
    for row in rows:
        scores = json.loads((here / "out" / row["directory"] / "labels.json").read_text())
        assert float(row["test_error"]) == scores["sources"]["xclp"]["error"]
    text = (here / "out" / "comparison.md").read_text()
    assert text.splitlines()[2].startswith("| run | error (%) | 95 % | p | best round |")
    assert "new points" in text
    assert "test error" not in text

    # Nothing runs twice, whatever num-rounds is: there are no rounds.
    ran.clear()
    assert compare("-c", "num-rounds=7").exit_code == 0
    assert ran == []


def test_given_an_interrupted_labeling_then_it_starts_again(here: Path, ran: list[str]) -> None:
    assert compare().exit_code == 0
    trial = here / "out" / "3-neighbors" / "seed-1"
    before = (trial / "labels.json").read_bytes()
    error = summary(trial)["test_error"]
    (trial / "summary.json").unlink()
    (trial / "clients" / "0" / "labels.csv").write_text("half")
    ran.clear()
    done = compare()
    assert done.exit_code == 0, done.output
    assert ran == ["3-neighbors/seed-1"]
    assert (trial / "labels.json").read_bytes() == before
    assert summary(trial)["test_error"] == error
