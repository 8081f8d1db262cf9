"""Run the trials of a table that have no valid result, and store each result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.records import read_run
from fedul_flwr.data.run_files.store import CONFIG, RunDirectory, require_unlocked
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import metrics_of
from fedul_flwr.experiments.runs_file import RunsFile, require_committed
from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.table_plan import Device, local_settings
from fedul_flwr.experiments.trial import (
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
                figures = metrics_of(read_run(directory))
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
            directory = RunDirectory(trial.directory)
            saved = directory.read_json(CONFIG)
            saved["settings"] |= local_settings(trial)
            directory.write_json(CONFIG, saved)
