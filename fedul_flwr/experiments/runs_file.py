"""The table of runs: a line of JSON for each run of a paper's table, and the runs that it lacks.

A line has the run's row, column, size and seed, whether a search chose its settings, its figures
(:func:`~fedul_flwr.experiments.metrics.metrics_of`), its test errors over rounds, all settings, and
where they come from. It has no paths: a data set has the name that the experiment has for it.
"""

from __future__ import annotations

import json
import math
import random
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.user_files import parse_json, read_text
from fedul_flwr.data.run_files import run as run_files
from fedul_flwr.data.run_files.run import SUMMARY
from fedul_flwr.data.run_files.store import DIRTY, SOURCE, git_commit, require_unlocked
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import metrics_of
from fedul_flwr.experiments.table import Size, Table
from fedul_flwr.experiments.table_plan import Device, local_settings
from fedul_flwr.experiments.trial import (
    Key,
    Log,
    Save,
    Trial,
    TrialResult,
    changes,
    prepare_directory,
    read_trial,
    run_trials,
)
from fedul_flwr.experiments.trial_plan import Plan

Run = Mapping[Any, Any]
"""A line of the table of runs."""
_ORDER = ("size", "tuned", "column", "row", "seed")
"""Keys that name a run, in the order of the lines."""
_KEYS = (*_ORDER, "test_error", "rounds", "test_errors", "settings", "content")
"""Columns that the table of runs has, even without a line."""
_HARDWARE = ("processor", "cpu_count", "gpu", "arithmetic")


def key_of(run: Run) -> Key:
    """Row, column and seed of a run."""
    return run["row"], run["column"], run["seed"]


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
        words += ["--quick"] if self.size == "quick" else []
        words += ["--tuned"] if self.tuned else []
        if key is not None:
            row, column, seed = key
            words += ["--rows", row, "--columns", column, "--seeds", str(seed)]
        return shlex.join(words)

    def read(self) -> pd.DataFrame:
        """The runs of this size and kind; without the file there are none."""
        runs = read_runs(self.path)
        return runs[(runs["size"] == self.size) & (runs["tuned"] == self.tuned)]

    def by_key(self) -> dict[Key, Run]:
        """The same by row, column and seed."""
        return {key_of(run): run for run in self.read().to_dict("records")}

    def add(self, new: Iterable[TrialResult], local_copies: Container[str]) -> None:
        """Store the runs of finished trials; a run replaces an earlier one of its trial.

        Data sets among ``local_copies`` were read from a local copy.
        """
        store_runs(
            self.path,
            (self._run(one, one.trial.settings["dataset"] in local_copies) for one in new),
        )

    def _run(self, result: TrialResult, is_local: bool) -> dict[str, Any]:
        run, trial = result.run, result.trial
        assert run is not None, "only finished trials have a run"
        rounds, errors = run.series("test_error")
        finished = datetime.fromtimestamp((run.path / SUMMARY).stat().st_mtime, UTC)
        return {
            **{"column": trial.column, "row": trial.row, "seed": trial.seed},
            **{"size": self.size, "tuned": self.tuned},
            **metrics_of(run),
            "seconds": run.figure("seconds_total"),
            "rounds": rounds,
            "test_errors": errors,
            "settings": dict(sorted(trial.settings.items())),
            "content": dict(trial.content),
            "data": f"{trial.settings['dataset']}{', local copy' if is_local else ''}",
            **provenance(run.environment, finished),
        }

    def check(self, run: Run, now: Run | None) -> None:
        """Refuse a run whose trial has other settings now, or None: is not in the table."""
        row, column, seed = key_of(run)
        name = f"The result ({self.kind}) of {self.table}, row {row!r}, column {column!r}, "
        name += f"seed {seed}"
        if now is None:
            raise UserError(
                f"{name} belongs to no run of the table: remove its line from {self.path}.",
                "result-of-other-settings",
            )
        if text := changes({**run, "content": {}}, {"settings": now, "content": {}}):
            raise UserError(
                f"{name} was made with other settings ({text}): run it again: "
                f"{self.command(key_of(run))}",
                "result-of-other-settings",
            )


def store_runs(file: Path, new: Iterable[Run]) -> None:
    """Write runs into a file in their order; one replaces an earlier one of its names."""
    runs = {_name(run): run for run in (*_lines(file), *new)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, "".join(json.dumps(runs[name]) + "\n" for name in sorted(runs)))


def read_runs(file: Path) -> pd.DataFrame:
    """All runs of a file, a row each; without the file there are none."""
    lines = _lines(file)
    columns = dict.fromkeys([*_KEYS, *(key for line in lines for key in line)])
    return pd.DataFrame(lines, columns=list(columns))


def no_runs() -> pd.DataFrame:
    """The table of runs without a run."""
    return pd.DataFrame([], columns=list(_KEYS))


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


def _name(run: Run) -> tuple[Any, ...]:
    return tuple(run[key] for key in _ORDER)


def _lines(file: Path) -> list[dict[str, Any]]:
    lines = []
    for number, text in enumerate((read_text(file) or "").splitlines(), start=1):
        line = parse_json(text, f"{file}, line {number}")
        if not isinstance(line, dict) or {*_ORDER, "settings"} - line.keys():
            raise UserError(f"{file}, line {number} is not a run.", "result-file-wrong")
        lines.append(line)
    return lines


@dataclass(frozen=True)
class Reproduction:
    """Runs of a table at one size: ``run`` makes one of a configuration, clients and a title."""

    table: Table
    file: RunsFile
    device: Device
    run: Callable[[RunConfig, int, str], None]
    say: Log

    def missing(self, plan: Plan, rows: Sequence[str]) -> list[Trial]:
        """Trials of ``rows`` without a stored result of the same settings."""
        stored = self.file.by_key()
        return [
            trial
            for trial in plan.trials
            if trial.row in rows
            and (trial.key not in stored or changes(stored[trial.key], trial.definition))
        ]

    def run_missing(self, plans: Sequence[Plan], rows: Sequence[str]) -> int:
        """Run the trials of ``rows`` without a valid result; how many failed, or their start did.

        The directory of an earlier run of the same settings is used: a finished run is stored, an
        interrupted one resumes. A directory of other settings is emptied.
        """
        if any(self.missing(plan, rows) for plan in plans):
            require_committed(self.file.folder)
        return sum(self._run_column(plan, self.missing(plan, rows)) for plan in plans)

    def verify(self, plans: Sequence[Plan], rows: Sequence[str], count: int) -> float:
        """Run ``count`` trials that have a result once more, and print how far both are apart.

        Returns the largest difference of two test errors, in percentage points.
        """
        stored = self.file.by_key()
        listed = [
            (plan, trial)
            for plan in plans
            for trial in plan.trials
            if trial.row in rows and trial.key in stored
        ]
        valid = [
            (plan, trial)
            for plan, trial in listed
            if plan.start is None and not changes(stored[trial.key], trial.definition)
        ]
        if len(valid) < len(listed):
            text = "have other settings than the table now, or start from another run"
            self.say(f"{len(listed) - len(valid)} of {len(listed)} results {text}: left out.")
        if not valid:
            raise UserError(
                f"{self.file.path} has no result of these rows and columns to verify.",
                "result-file-wrong",
            )
        largest = 0.0
        for plan, trial in random.Random(0).sample(valid, min(count, len(valid))):
            with TemporaryDirectory(prefix="fedul-verify-") as scratch:
                directory = Path(scratch) / "run"
                config = trial.config.model_copy(update={"output": str(directory)})
                title = f"{trial.column}, {trial.title}"
                self.run(config, plan.num_clients, title)
                figures = metrics_of(run_files.Run.read(directory))
            run = stored[trial.key]
            before, now = run["test_error"], figures.get("test_error")
            commit = str(run["commit"] or "of unknown commit")[:10]
            if now is None or math.isnan(before):
                self.say(f"{title}: no test error to compare.")
                continue
            largest = max(largest, abs(now - before))
            self.say(f"{title}: {before:.2f} % ({commit}), now {now:.2f} %: {now - before:+.2f}")
        return largest

    def _run_column(self, plan: Plan, trials: Sequence[Trial]) -> int:
        if not trials:
            return 0
        self.say(f"{self.table.name}, {self.file.size}, {plan.column}: {len(trials)} to run.")
        ready = set(plan.seeds)
        if plan.start is not None:
            seeds = {trial.seed for trial in trials}
            first = [trial for trial in plan.start.trials if trial.seed in seeds]
            ready = {result.trial.seed for result in self._run(plan, first, lambda _: None)}
        begin = [trial for trial in trials if trial.seed in ready]
        if waiting := len(trials) - len(begin):
            self.say(f"{waiting} not run: the run that they start from failed.")
        return len(trials) - len(self._run(plan, begin, self._store))

    def _run(self, plan: Plan, trials: Sequence[Trial], save: Save) -> list[TrialResult]:
        """Run trials, and return those that finished."""
        for trial in trials:
            self._prepare(trial)
        results = run_trials(
            trials, lambda config, title: self.run(config, plan.num_clients, title), self.say, save
        )
        return [result for result in results if result.status == "finished"]

    def _store(self, results: Sequence[TrialResult]) -> None:
        if finished := [result for result in results if result.status == "finished"]:
            self.file.add(finished, self.device.datasets)

    def _prepare(self, trial: Trial) -> None:
        """Empty the directory if it has other settings; let a run that resumes use this device."""
        require_unlocked(trial.directory)
        if prepare_directory(trial.directory, trial.definition):
            text = "an earlier run had other settings or files; it starts again."
            self.say(f"{trial.title}: {text}")
        if trial.has_model and read_trial(trial).status != "finished":
            run = run_files.Run.read(trial.directory)
            run.store(settings=run.settings | local_settings(trial))
