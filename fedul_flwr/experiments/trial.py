"""A trial: the settings and the seed of a run, what came of it, and trials one after the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, default_flat, resolve
from fedul_flwr.config.user_files import read_object, read_text
from fedul_flwr.data.run_files.parts import Summary
from fedul_flwr.data.run_files.records import number
from fedul_flwr.data.run_files.run import CONFIG, ERROR, SUMMARY, Run
from fedul_flwr.data.run_files.store import DirectoryLockedError, require_unlocked
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.user_content import changed_content
from fedul_flwr.engine.simulate import plan_rounds
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import duration, percent

DEFINITION = "definition.json"
"""File of a directory with all that its runs depend on."""
Key = tuple[str, str, int]
"""Row, column and seed."""
CLIENTS = "num-supernodes"
"""Key of the number of clients in :attr:`Trial.settings`."""
START_PREFIX = "start-from:"
"""Prefix of the settings of the run that a trial starts from, in :attr:`Trial.settings`."""


@dataclass(frozen=True)
class Trial:
    """A run of a row with one seed.

    Attributes
    ----------
    config : settings of the run on this computer.
    settings : flat settings and :data:`CLIENTS`, without those that do not change the result. A
        stored result is valid as long as they are the same.
    column : the column of a paper's table; empty in a comparison of runs.
    content : digests of the user's files and modules that the settings name
        (:func:`~fedul_flwr.data.user_content.user_content`).
    start : the run whose model it starts from.
    """

    row: str
    seed: int
    directory: Path
    config: RunConfig
    settings: Mapping[str, Scalar]
    column: str = ""
    content: Mapping[str, str] = field(default_factory=dict)
    start: Trial | None = None

    @property
    def key(self) -> Key:
        """Row, column and seed."""
        return self.row, self.column, self.seed

    @property
    def title(self) -> str:
        """Row and seed for messages."""
        return f"{self.row}, seed {self.seed}"

    @property
    def clients(self) -> int:
        """Number of clients."""
        return int(self.settings[CLIENTS])

    @property
    def trains(self) -> bool:
        """Whether the method trains; if not, its clients label their points once."""
        return find_method(self.config.method).trains

    @property
    def definition(self) -> dict[str, Any]:
        """All that its result depends on."""
        return {"settings": dict(self.settings), "content": dict(self.content)}

    @property
    def has_model(self) -> bool:
        """Whether a round of it is in its directory."""
        return (self.directory / LAST_MODEL).exists()


def read_trial(trial: Trial) -> dict[str, Any]:
    """A line of the table of runs: what is in a trial's directory, which need not exist.

    It has ``row``, ``column``, ``seed``, ``trial``, ``status``, ``reason`` of a failure in one
    line, ``run`` of a finished trial, and the numbers of its summary.

    A run with fewer rounds than ``trial.config`` asks for is interrupted. A run of a method that
    does not train is either finished or has to start again.
    """
    run = Run.read(trial.directory) if (trial.directory / CONFIG).exists() else None
    if run and run.summary and _is_complete(trial, run.summary):
        entries = run.summary.entries.items()
        numbers = {key: value for key, value in entries if number(value) is not None}
        return {**numbers, **_line(trial, "finished"), "run": run}
    if reason := _reason(trial.directory):
        return _line(trial, "failed", reason)
    return _line(trial, "interrupted" if trial.has_model else "to do")


def _line(trial: Trial, status: str, reason: str = "") -> dict[str, Any]:
    names = {"row": trial.row, "column": trial.column, "seed": trial.seed, "trial": trial}
    return {**names, "status": status, "reason": reason}


def _reason(directory: Path) -> str:
    return " ".join((read_text(directory / ERROR, errors="replace") or "").split())


def _is_complete(trial: Trial, summary: Summary) -> bool:
    if not trial.trains:
        return summary.status == "completed"
    if summary.budget_exhausted or summary.stopped_early:
        return True
    return (summary.rounds or 0) >= trial.config.num_rounds


def check_unchanged(trials: Iterable[Trial]) -> None:
    """Refuse trials whose directory has a run of other settings or files; more rounds may follow.

    A directory without a trained round is ignored: its trial starts again.
    """
    for trial in trials:
        if not (trial.has_model or (trial.directory / SUMMARY).exists()):
            continue
        then = read_object(trial.directory / DEFINITION) or {"settings": {}, "content": {}}
        rounds = then["settings"].get("num-rounds", 0)
        if not trial.trains or rounds < trial.config.num_rounds:
            then["settings"]["num-rounds"] = trial.config.num_rounds
        if text := changes(then, trial.definition):
            raise UserError(
                f"{trial.directory} has a run of other settings or files ({text}): name another "
                "--output for this comparison, or remove that one.",
                "result-of-other-settings",
            )


def prepare_directory(directory: Path, definition: Mapping[str, Any]) -> bool:
    """Make a directory for runs of ``definition``; whether runs of another one were removed."""
    mark, text = directory / DEFINITION, _text(definition)
    outdated = directory.exists() and not (mark.exists() and mark.read_text() == text)
    if outdated:
        require_unlocked(directory)
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, text)
    return outdated


def _text(definition: Mapping[str, Any]) -> str:
    return json.dumps(definition, indent=1, sort_keys=True)


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two definitions of a trial, in words; empty if nothing does.

    A setting that exists on one side only is newer than the other side, where it had the effect of
    its default. One that no longer exists is a difference; one without an effect on the method is
    none.
    """
    before, after, defaults = then["settings"], now["settings"], default_flat()
    texts = []
    idle = find_method(str(after.get("method", defaults["method"]))).idle
    for key in (key for key in {**after, **before} if key not in idle):
        default = defaults.get(key.removeprefix(START_PREFIX))
        was, new = before.get(key, default), after.get(key, default)
        if was != new:
            texts.append(f"{key} was {was!r}, is {new!r}")
    texts += [
        f"{key} has another content" for key in changed_content(then["content"], now["content"])
    ]
    return "; ".join(texts[:3])


Simulate = Callable[[Trial, RunConfig, str], None]
"""Runs a trial with a configuration under a title, and raises an error if the run fails."""
Log = Callable[[str], None]
"""Prints a line."""


def run_trials(
    trials: Sequence[Trial],
    simulate: Simulate,
    log: Log,
    save: Callable[[pd.DataFrame], None],
) -> pd.DataFrame:
    """Run the trials that are not finished, and return the table of runs (:func:`read_trial`).

    Finished trials count whatever settings they were run with. After a trial that fails the others
    still run. ``save`` gets the table at the beginning and after each trial.
    """
    lines = {trial.key: read_trial(trial) for trial in trials}
    todo = [trial for trial in trials if lines[trial.key]["status"] != "finished"]
    if len(todo) < len(trials):
        log(f"{len(trials) - len(todo)} of {len(trials)} trials are finished already.")
    save(_table(lines.values()))
    for position, trial in enumerate(todo):
        left = _time_left(todo[position:], lines.values())
        title = f"trial {list(lines).index(trial.key) + 1} of {len(lines)}: {trial.title}{left}"
        try:
            _run(trial, simulate, title)
            line = lines[trial.key] = read_trial(trial)
            measured = "test error" if trial.trains else "error of labels"
            log(f"{trial.title}: {measured} {percent(line.get('test_error'))}")
        except (KeyboardInterrupt, DirectoryLockedError):
            lines[trial.key] = read_trial(trial)
            save(_table(lines.values()))
            raise
        except Exception as error:  # the other trials can still run
            if not _reason(trial.directory):  # the run has not written why
                Run(path=trial.directory).write_error(one_line(error))
            reason = _reason(trial.directory)
            lines[trial.key] = _line(trial, "failed", reason)
            log(f"{trial.title} failed: {reason}")
        save(_table(lines.values()))
    return _table(lines.values())


def table_of(trials: Iterable[Trial]) -> pd.DataFrame:
    """The table of runs: a line of :func:`read_trial` for each trial."""
    return _table(map(read_trial, trials))


_COLUMNS = ("row", "column", "seed", "trial", "status", "reason", "run", "test_error")


def _table(lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    every = [*lines]
    keys = dict.fromkeys([*_COLUMNS, *(key for line in every for key in line)])
    return pd.DataFrame({key: [line.get(key) for line in every] for key in keys}, dtype=object)


def one_line(error: Exception) -> str:
    """The message of an error in one line, with the type of an unexpected one."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _run(trial: Trial, simulate: Simulate, title: str) -> None:
    """Run a trial, or resume it."""
    require_unlocked(trial.directory)
    trial.directory.mkdir(parents=True, exist_ok=True)
    (trial.directory / ERROR).unlink(missing_ok=True)  # of an earlier failure
    write_atomically(trial.directory / DEFINITION, _text(trial.definition))
    config = trial.config
    if trial.has_model:  # it resumes on the device on which it began
        config = resolve({"resume": str(trial.directory)}, Path.cwd())
        if config.num_rounds != trial.config.num_rounds:
            config = plan_rounds(config, trial.config.num_rounds)
    simulate(trial, config, title)


def _time_left(trials: Sequence[Trial], lines: Iterable[Mapping[str, Any]]) -> str:
    """Expected time of ``trials``: the mean of their row's times, or of all times."""
    seconds: dict[str, list[float]] = {}
    for line in lines:
        if took := line.get("seconds_total"):
            seconds.setdefault(line["row"], []).append(took)
    if not seconds:
        return ""
    every = [took for of_row in seconds.values() for took in of_row]
    expected = sum(fmean(seconds.get(trial.row, every)) for trial in trials)
    return f", about {duration(round(expected))} left"
