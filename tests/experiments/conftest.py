"""Working directories with the miniature table of digits; comparisons whose plot is not drawn."""

import csv
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine import in_process as simulation
from fedul_flwr.experiments import compare_files
from tests.support.digits_table import FILE, METHODS, TABLE


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def no_comparison_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure is made after every trial, but its file is empty."""
    monkeypatch.setattr(compare_files, "draw", lambda figure, form: b"")
    monkeypatch.setattr(compare_files, "pictures", lambda figures: [])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Configurations that were simulated."""
    configs: list[RunConfig] = []
    real = simulation.run_in_process

    def count(config: RunConfig, clients: int, **options: Any) -> None:
        configs.append(config)
        real(config, clients, **options)

    monkeypatch.setattr(simulation, "run_in_process", count)
    return configs


@pytest.fixture
def digits_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the miniature table."""
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir(parents=True)
    FILE.write_text(TABLE)
    (FILE.parent / "methods.py").write_text(METHODS)
    return tmp_path
