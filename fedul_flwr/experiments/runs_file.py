"""The table of runs: a line of JSON for each run of a paper's table.

A line has the run's row, column, size and seed, whether a search chose its settings, its figures
(:func:`~fedul_flwr.experiments.metrics.metrics_of`), its test errors over rounds, all settings, and
where they come from. It has no paths: a data set has the name that the experiment has for it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fedul_flwr.config.user_files import parse_json, read_text
from fedul_flwr.data.run_files.run import SUMMARY, Run
from fedul_flwr.data.run_files.store import DIRTY, SOURCE, git_commit
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import metrics_of
from fedul_flwr.experiments.table import Size
from fedul_flwr.experiments.trial import Key, Trial

_ORDER = ("size", "tuned", "column", "row", "seed")
"""Keys that name a run, in the order of the lines."""
_KEYS = (*_ORDER, "test_error", "rounds", "test_errors", "settings", "content", "commit")
"""Columns that the table of runs has, even without a line."""
_HARDWARE = ("processor", "cpu_count", "gpu", "arithmetic")


@dataclass(frozen=True)
class RunsFile:
    """The runs of a table at one size; ``tuned`` ones have the settings that a search chose."""

    folder: Path
    table: str
    size: Size
    tuned: bool = False

    @property
    def path(self) -> Path:
        """Path of the file, which has the runs of both sizes."""
        return self.folder / f"{self.table}.jsonl"

    @property
    def searches(self) -> Path:
        """Path of the file with the table's searches."""
        return self.folder / f"{self.table}.search.jsonl"

    @property
    def kind(self) -> str:
        """Size, and whether the settings are chosen by a search: ``quick, tuned``."""
        return f"{self.size}, tuned" if self.tuned else self.size

    def command(self, key: Key | None = None) -> str:
        """The command that makes one run, or all of them."""
        words = ["fedul-flwr", "reproduce", self.table]
        words += ["--quick"] * (self.size == "quick") + ["--tuned"] * self.tuned
        if key is not None:
            row, column, seed = key
            words += ["--rows", row, "--columns", column, "--seeds", str(seed)]
        return shlex.join(words)

    def read(self) -> pd.DataFrame:
        """The runs of this size and kind, by row, column and seed; without the file none."""
        lines = _lines(self.path)
        columns = dict.fromkeys([*_KEYS, *(key for line in lines for key in line)])
        runs = pd.DataFrame(lines, columns=list(columns))
        runs = runs[(runs["size"] == self.size) & (runs["tuned"] == self.tuned)]
        return runs.set_index(["row", "column", "seed"], drop=False)

    def add(self, new: Iterable[tuple[Trial, Run]], local_copies: Container[str]) -> None:
        """Store finished runs; a run replaces an earlier one of its trial.

        Data sets among ``local_copies`` were read from a local copy.
        """
        store_runs(self.path, [self._line(*one, local_copies) for one in new])

    def _line(self, trial: Trial, run: Run, local_copies: Container[str]) -> dict[str, Any]:
        rounds, errors = run.series("test_error")
        finished = datetime.fromtimestamp((run.path / SUMMARY).stat().st_mtime, UTC)
        dataset = trial.settings["dataset"]
        return {
            **{"column": trial.column, "row": trial.row, "seed": trial.seed},
            **{"size": self.size, "tuned": self.tuned},
            **metrics_of(run),
            "seconds": run.figure("seconds_total"),
            "rounds": rounds,
            "test_errors": errors,
            "settings": dict(sorted(trial.settings.items())),
            "content": dict(trial.content),
            "data": f"{dataset}{', local copy' if dataset in local_copies else ''}",
            **provenance(run.environment, finished),
        }


def store_runs(file: Path, new: Iterable[Mapping[str, Any]]) -> None:
    """Write runs into a file in their order; one replaces an earlier one of its names."""
    runs = {tuple(run[key] for key in _ORDER): run for run in (*_lines(file), *new)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, "".join(json.dumps(runs[name]) + "\n" for name in sorted(runs)))


def _lines(file: Path) -> list[dict[str, Any]]:
    lines = []
    for number, text in enumerate((read_text(file) or "").splitlines(), start=1):
        line = parse_json(text, f"{file}, line {number}")
        if not isinstance(line, dict) or {*_ORDER, "settings"} - line.keys():
            raise UserError(f"{file}, line {number} is not a run.", "result-file-wrong")
        lines.append(line)
    return lines


def require_committed(folder: Path) -> None:
    """Refuse to store results of changed code beside the code: nobody could run them again."""
    inside = folder.resolve().is_relative_to(SOURCE)
    if inside and (git_commit() or "").endswith(DIRTY):
        raise UserError(
            f"{folder} is for results of committed code, and this code was changed: commit it, or "
            "name another folder with --results.",
            "code-not-committed",
        )


def provenance(environment: Mapping[str, Any], date: datetime) -> dict[str, Any]:
    """Commit, hardware, versions and date of a run."""
    return {
        "commit": environment.get("git_commit"),
        "hardware": {key: environment.get(key) for key in _HARDWARE},
        "versions": {"python": environment.get("python"), **environment.get("versions", {})},
        "date": date.isoformat(timespec="seconds"),
    }


def age(runs: pd.DataFrame) -> str:
    """Date and commit of the oldest run: `` since 2026-11-02 (4ab1c09e)``."""
    oldest = runs.sort_values("date").iloc[0]
    commit = str(oldest["commit"])[:8] if oldest["commit"] else "commit unknown"
    return f" since {oldest['date'][:10]} ({commit})"
