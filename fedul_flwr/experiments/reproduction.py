"""Stored runs of a paper's table beside the trials that it has now: checks, missing runs, drift."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.run_files.store import require_unlocked
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import metrics_of
from fedul_flwr.experiments.runs_file import RunsFile, require_committed
from fedul_flwr.experiments.studies import tuned_rows
from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.table_plan import PATHS, Device, plan_columns
from fedul_flwr.experiments.trial import (
    Key,
    Log,
    Simulate,
    Trial,
    changes,
    prepare_directory,
    read_trial,
    run_trials,
)


def plan_cells(
    table: Table, file: RunsFile, keys: Iterable[Key], device: Device | None = None
) -> list[Trial]:
    """The trials with these rows, columns and seeds, as far as the table has them.

    Tuned ones have the settings that searches chose.
    """
    rows = {column: table.column(column, file.size).rows for column in table.names}
    wanted = [key for key in keys if key[0] in rows.get(key[1], ())]
    columns = [column for column in table.names if any(column == key[1] for key in wanted)]
    seeds = list(dict.fromkeys(seed for *_, seed in wanted))
    chosen = tuned_rows(table, file, wanted) if file.tuned else None
    trials = plan_columns(table, columns, file.size, seeds, device or Device(), chosen)
    return [trial for trial in trials if trial.key in {*wanted}]


def check_runs(table: Table, file: RunsFile, runs: pd.DataFrame) -> None:
    """Refuse runs of a file that the experiment as it is now would not make."""
    now = {trial.key: trial.settings for trial in plan_cells(table, file, runs.index)}
    for row, column, seed, then in runs[["row", "column", "seed", "settings"]].itertuples(
        index=False
    ):
        key = (row, column, seed)
        name = f"The result ({file.kind}) of {file.table}, row {row!r}, column {column!r}, "
        name += f"seed {seed}"
        if key not in now:
            raise UserError(
                f"{name} belongs to no run of the table: remove its line from {file.path}.",
                "result-of-other-settings",
            )
        if text := changes(
            {"settings": then, "content": {}}, {"settings": now[key], "content": {}}
        ):
            raise UserError(
                f"{name} was made with other settings ({text}): run it again: {file.command(key)}",
                "result-of-other-settings",
            )


def missing(file: RunsFile, trials: Sequence[Trial]) -> list[Trial]:
    """Trials without a stored result of the same settings."""
    stored: dict[Any, Any] = file.read()[["settings", "content"]].to_dict("index")
    return [t for t in trials if t.key not in stored or changes(stored[t.key], t.definition)]


def run_missing(
    file: RunsFile,
    trials: Sequence[Trial],
    local_copies: Container[str],
    simulate: Simulate,
    say: Log,
) -> int:
    """Run the trials without a valid result; how many failed, or their start did.

    The directory of an earlier run of the same settings is used: a finished run is stored, an
    interrupted one resumes. A directory of other settings is emptied.
    """
    todo, failed = missing(file, trials), 0
    if todo:
        require_committed(file.folder)

    def run(trials: Sequence[Trial], *, store: bool) -> list[Trial]:
        """Run trials, and return those that finished."""
        for trial in trials:
            _prepare(trial, say)

        def save(runs: pd.DataFrame) -> None:
            finished = runs[runs["run"].notna()]
            if store and len(finished):
                file.add(zip(finished["trial"], finished["run"], strict=True), local_copies)

        runs = run_trials(trials, simulate, say, save)
        return runs.loc[runs["run"].notna(), "trial"].tolist()

    for column, of_column in groupby(todo, key=lambda trial: trial.column):
        waiting = [*of_column]
        say(f"{file.table}, {file.size}, {column}: {len(waiting)} to run.")
        starts = {start.key: start for trial in waiting if (start := trial.start) is not None}
        ready = {None, *(start.key for start in run([*starts.values()], store=False))}
        begin = [trial for trial in waiting if (trial.start and trial.start.key) in ready]
        if len(begin) < len(waiting):
            count = len(waiting) - len(begin)
            say(f"{count} not run: the run that they start from failed.")
        failed += len(waiting) - len(run(begin, store=True))
    return failed


def _prepare(trial: Trial, say: Log) -> None:
    """Empty the directory if it has other settings; let a run that resumes use this device."""
    require_unlocked(trial.directory)
    if prepare_directory(trial.directory, trial.definition):
        say(f"{trial.title}: an earlier run had other settings or files; it starts again.")
    if trial.has_model and read_trial(trial)["status"] != "finished":
        run, flat = Run.read(trial.directory), trial.config.to_flat()
        here = {key: flat[key] for key in ("device", *PATHS) if key in flat}
        run.store(settings=run.settings | here)


def verify(
    file: RunsFile, trials: Sequence[Trial], count: int, simulate: Simulate, say: Log
) -> float:
    """Run ``count`` trials that have a result once more, and print how far both are apart.

    Returns the largest difference of two test errors, in percentage points.
    """
    stored: dict[Any, Any] = file.read()[["test_error", "commit"]].to_dict("index")
    outdated = {trial.key for trial in missing(file, trials)}
    valid = [trial for trial in trials if trial.start is None and trial.key not in outdated]
    if len(valid) < len(trials):
        text = "have other settings than the table now, or start from another run"
        say(f"{len(trials) - len(valid)} of {len(trials)} results {text}: left out.")
    if not valid:
        raise UserError(
            f"{file.path} has no result of these rows and columns to verify.", "result-file-wrong"
        )
    largest = 0.0
    for trial in random.Random(0).sample(valid, min(count, len(valid))):
        with TemporaryDirectory(prefix="fedul-verify-") as scratch:
            directory = Path(scratch) / "run"
            config = trial.config.model_copy(update={"output": str(directory)})
            title = f"{trial.column}, {trial.title}"
            simulate(trial, config, title)
            now = metrics_of(Run.read(directory)).get("test_error")
        before, commit = stored[trial.key].values()
        if now is None or pd.isna(before):
            say(f"{title}: no test error to compare.")
            continue
        largest = max(largest, abs(now - before))
        of = str(commit or "of unknown commit")[:10]
        say(f"{title}: {before:.2f} % ({of}), now {now:.2f} %: {now - before:+.2f}")
    return largest
