"""``fedul-flwr run --tune``: settings are searched, then the run has them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.experiments.studies import chosen_settings, read_studies

GIVEN = ["run", "--engine", "in-process", "--num-supernodes", "2"]
GIVEN += ["-c", "dataset=wine num-rounds=2"]


def test_a_run_has_the_best_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["-c", "method=supervised seed=4 learning-rate=1e-7", "--output", "best"]
    done = CliRunner().invoke(app, [*GIVEN, *options, "--tune", "3"])
    assert done.exit_code == 0, done.output
    study = read_studies(tmp_path / "best-search" / "search.jsonl")["supervised"]
    assert len(study.trials) == 3
    assert study.user_attrs["seeds"] == [5, 1005]
    chosen = chosen_settings(study)
    assert chosen is not None
    # The first trial is the run as it was, which learns nothing with such steps.
    assert "learning-rate" in chosen
    kept = json.loads((tmp_path / "best" / "config.json").read_text())["settings"]
    assert {key: kept[key] for key in chosen} == chosen
    assert kept["seed"] == 4
    assert "Chosen by" in done.output


@pytest.mark.parametrize("option", [["--resume", "there"], ["--federation", "there"]])
def test_given_a_run_that_cannot_be_searched_then_it_is_refused(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", *option, "--tune", "3"])
    assert done.exit_code == 1
    assert "Error: --" in done.output
    assert not list(tmp_path.iterdir())
