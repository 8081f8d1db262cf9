"""Comparisons with methods that do not train: finished without rounds, or begun anew."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.experiments.compare_table import headings, make_rows, notes
from fedul_flwr.experiments.trial import read_cell
from fedul_flwr.experiments.trial_plan import Plan, make_plan
from fedul_flwr.experiments.trial_plots import comparison_figure
from tests.results.synthetic import write_label_run
from tests.runs import summary

RUNS = """
["3 neighbours"]
method = "xclp-predict"
xclp.k = 3
["10 neighbours"]
method = "xclp-predict"
"""
OPTIONS = ("--runs", "runs.toml", "--seeds", "0,1", "--num-supernodes", "3", "--in-process")
QUICK = ("-c", 'labels.total=30 xclp-predict.compare=false xclp.secure="plaintext"')
LABELS = {"method": "xclp-predict"}
MODEL = {"method": "labels-only"}


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


def plan(tmp_path: Path, *runs: dict[str, Any], num_rounds: int = 2) -> Plan:
    named = {str(run["method"]): run for run in runs}
    return make_plan(named, {"num-rounds": num_rounds}, (0,), 3, tmp_path / "out")


def test_two_settings_on_two_seeds(here: Path, ran: list[str]) -> None:
    done = compare()
    assert done.exit_code == 0, done.output
    cells = [f"{run}-neighbours/seed-{seed}" for seed in (0, 1) for run in (3, 10)]
    assert ran == cells
    assert "3 neighbours, seed 0: error of labels " in done.output
    assert "rounds" not in done.output
    with (here / "out" / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["finished"] * 4
    for row in rows:
        scores = json.loads((here / "out" / row["directory"] / "labels.json").read_text())
        assert float(row["test_error"]) == scores["sources"]["xclp"]["error"]
    text = (here / "out" / "comparison.md").read_text()
    assert text.splitlines()[2].startswith("| run | error (%) | 95 % | p | best round |")
    assert "It is that of the labels that clients gave their new points" in text
    assert "test error" not in text

    # Nothing runs twice, whatever the number of rounds, which there are none of.
    ran.clear()
    assert compare("-c", "num-rounds=7").exit_code == 0
    assert ran == []


def test_an_interrupted_cell_starts_anew(here: Path, ran: list[str]) -> None:
    assert compare().exit_code == 0
    cell = here / "out" / "3-neighbours" / "seed-1"
    before = (cell / "labels.json").read_bytes()
    error = summary(cell)["test_error"]
    (cell / "summary.json").unlink()
    (cell / "clients" / "0" / "labels.csv").write_text("half")
    ran.clear()
    done = compare()
    assert done.exit_code == 0, done.output
    assert ran == ["3-neighbours/seed-1"]
    assert (cell / "labels.json").read_bytes() == before
    assert summary(cell)["test_error"] == error


def test_status_decides(here: Path) -> None:
    (cell,) = plan(here, LABELS).cells
    assert read_cell(cell).status == "to do"
    write_label_run(cell.directory)
    assert read_cell(cell).status == "finished"
    (cell.directory / "summary.json").write_text('{"status": "other"}')
    assert read_cell(cell).status == "to do"


def test_runs_that_train_beside_runs_that_label(here: Path) -> None:
    asked = plan(here, LABELS, MODEL)
    write_label_run(asked.cells[0].directory)
    rows = make_rows(asked, [read_cell(cell) for cell in asked.cells])
    assert headings(rows)[1] == "error (%)"
    said = notes(asked, rows, "Bold")
    assert said[1].startswith("Of xclp-predict it is that of the labels that clients gave ")
    assert "Of the others it is the test error of the best round's model" in said[1]
    figure = comparison_figure(rows)
    assert len(figure.axes) == 2
    assert "error of labels, or test error" in figure.axes[1].get_xlabel()


def test_labels_that_nobody_could_score(here: Path) -> None:
    asked = plan(here, LABELS)
    write_label_run(asked.cells[0].directory, scored=False)
    rows = make_rows(asked, [read_cell(cell) for cell in asked.cells])
    assert "Nobody could score the labels of: xclp-predict, seed 0." in notes(asked, rows, "Bold")
    comparison_figure(rows).savefig(here / "figure.png")
    with Image.open(here / "figure.png") as picture:
        assert picture.width < 800
