"""Searches of rows: the trials of a row run one after the other in an Optuna study."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from filelock import FileLock, Timeout

from fedul_flwr.config.base import Scalar, load_reference
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, keys_in_use, resolve
from fedul_flwr.data.run_files.records import Line
from fedul_flwr.data.run_files.store import ENVIRONMENT, SUMMARY, RunDirectory
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.engine.flower_logs import flower_logs
from fedul_flwr.engine.shell import follow_parent
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.search_space import (
    Candidate,
    Criterion,
    Name,
    SearchSettings,
    candidates,
    is_diverged,
    label,
    make_criterion,
)
from fedul_flwr.experiments.trial import Log, Trial, digest, one_line, prepare_directory
from fedul_flwr.experiments.trial_plan import Overrides, Plan, slug

if TYPE_CHECKING:
    from optuna.trial import Trial as OptunaTrial

TRIALS = Path("runs/tune")
"""Directory of the trials of tables, below the working directory."""
IDENTITY, RECORD = "search.sha256", "trial.json"
SEED_STEP = 1000
"""A trial's runs have the seeds s, s + 1000, …, so that the numbers after s stay fresh."""
_WARM_UPS = ("warm-up-rounds", "ramp-up-rounds", "labels-only-rounds")
"""Last words of the settings that say in how many first rounds a method is not yet itself."""

Lines = Sequence[Line]
Record = Mapping[str, Any]
"""How a trial ended: state, settings, measure, reports, seconds."""


class DivergedError(Exception):
    """A loss or a weight of a trial is not finite."""


@dataclass(frozen=True)
class RowSearch:
    """The definition of a row's search; it can be sent to another process.

    Attributes
    ----------
    row, column : the row; the column is empty in a comparison of runs.
    settings : settings by which the stored search is recognized, see ``Trial.settings``.
    all_settings : all flat settings of the row on this computer.
    num_clients : number of clients.
    directory : directory of the trials.
    search, criterion : the settings to try, and the measure to compare them by.
    seed : seed of the drawn points and of the first run of every trial.
    content : digests of the user's files and modules, see ``Trial.content``.
    """

    row: str
    column: str
    settings: Mapping[str, Scalar]
    all_settings: Overrides
    num_clients: int
    directory: Path
    search: SearchSettings
    criterion: Criterion
    seed: int
    content: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Column and row for messages."""
        return f"{self.column}, {self.row}" if self.column else self.row

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs of every trial."""
        return [self.seed + SEED_STEP * k for k in range(self.search.seeds)]

    @property
    def warm_up(self) -> int:
        """First rounds that no rung judges: the method's warm-up, at most half of the rounds."""
        used = keys_in_use(dict(self.all_settings))
        rounds = [v for k, v in self.all_settings.items() if k in used and k.endswith(_WARM_UPS)]
        numbers = [value for value in rounds if isinstance(value, int)]
        return min(max(numbers, default=0), int(self.all_settings["num-rounds"]) // 2)

    @property
    def identity(self) -> str:
        """Digest of everything that the result depends on."""
        return digest(
            {
                "settings": dict(self.settings),
                "search": self.search.model_dump(by_alias=True),
                "criterion": self.criterion.name,
                "selection": self.criterion.selection,
                **({"content": dict(self.content)} if self.content else {}),
            }
        )

    def base(self) -> Overrides:
        """Settings of the trial that changes nothing."""
        return {**self.all_settings, **self.criterion.settings(), "seed": self.seed}

    def config(self, flat: Overrides, output: Path | None = None) -> RunConfig:
        """Check the settings of a trial."""
        config = resolve({**flat, "output": ""}, Path.cwd())
        load_reference(find_method(config.method).strategy, "method").validate(config)
        return config.model_copy(update={"output": "" if output is None else str(output)})

    def candidates(self) -> Iterator[Candidate]:
        """The settings of its trials in their order; more than it needs, as some diverge."""
        return candidates(
            self.search, self.seed, self.base(), lambda flat: self.config(flat).to_flat()
        )


def plan_searches(
    plans: Sequence[Plan],
    rows: Sequence[str],
    search: SearchSettings,
    criterion: Name,
    directory: Path,
) -> list[RowSearch]:
    """Plan the searches of ``rows``.

    Parameters
    ----------
    plans : columns of a table, or a comparison of runs, with the search's seed alone.
    """
    tasks = []
    for plan in plans:
        trials = [trial for trial in plan.trials if trial.row in rows]
        if plan.start is not None and trials:
            raise UserError(
                f"Column {plan.column!r} starts from the model of another run, which no search "
                "covers: leave it out with --columns.",
                "nothing-to-search",
            )
        folder = directory / slug(plan.column)
        tasks += [
            _row_search(trial, plan, search, criterion, folder / slug(trial.row))
            for trial in trials
        ]
    return tasks


def _row_search(
    trial: Trial, plan: Plan, search: SearchSettings, name: Name, folder: Path
) -> RowSearch:
    try:
        flat = {key: v for key, v in trial.config.to_flat().items() if key != "output"}
        in_use = keys_in_use(flat)
        settings = flat | {key: v for key, v in search.settings.items() if key in in_use}
        task = RowSearch(
            row=trial.row,
            column=trial.column,
            settings=trial.settings,
            all_settings=settings,
            num_clients=plan.num_clients,
            directory=Path.cwd() / folder,
            search=search,
            criterion=make_criterion(name, trial.config, resolve(settings, Path.cwd())),
            seed=trial.seed,
            content=trial.content,
        )
        task.config(task.base())
    except UserError as error:
        where = f"Row {trial.row!r}" + (f", column {trial.column!r}" if trial.column else "")
        raise UserError(f"{where}: {error}", error.code, **error.values) from None
    return task


def require_optuna() -> None:
    """Refuse to search if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError(
            "fedul-flwr tune needs Optuna: pip install 'fedul-flwr[tune]', or in a checkout "
            "pip install -e '.[tune]' (make setup installs it).",
            "package-missing",
        ) from None


def ended_searches(
    tasks: Sequence[RowSearch], jobs: int, log: Log
) -> Iterator[tuple[RowSearch, list[Record]]]:
    """Search rows, and yield each with the records of its trials as soon as it ends.

    The trials of one row run one after the other whatever ``jobs`` is, so that no clock decides
    which of them stop early.

    Parameters
    ----------
    jobs : number of rows that are searched at the same time, in processes of their own.
    """
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, run_search(task, log)
        return
    with _processes(min(jobs, len(tasks))) as pool:
        waiting: dict[Future[list[Record]], RowSearch] = {
            pool.submit(run_search, task, partial(print, flush=True)): task for task in tasks
        }
        for future in as_completed(waiting):
            try:
                records = future.result()
            except BrokenProcessPool:
                raise UserError(
                    "A process of the search was killed, perhaps because memory ran out. The same "
                    "command resumes the search; fewer --jobs need less memory.",
                    "search-failed",
                ) from None
            yield waiting[future], records


def run_search(task: RowSearch, log: Log) -> list[Record]:
    """Run the trials that have not ended yet, and print how each ended.

    A trial that failed in an earlier call runs again; an interrupted trial resumes after its last
    complete round. A trial that diverges does not count: another one takes its place, as long as
    the space has new points and no more than half of the trials have diverged.

    Returns
    -------
    A record of each trial in the order of the candidates.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = task.directory
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0)
    try:
        with flower_logs(logging.ERROR), lock:
            prepare_directory(folder, IDENTITY, task.identity)
            return _run_trials(task, log)
    except Timeout:
        raise UserError(
            f"Another search is running in {folder}: wait for its end.", "run-in-use"
        ) from None


def best_of(records: Sequence[Record]) -> Record | None:
    """The complete trial with the lowest value, the first of equal ones; None without any."""
    complete = [record for record in records if record["state"] == "complete"]
    return min(complete, key=lambda record: float(record["value"]), default=None)


def _run_trials(task: RowSearch, log: Log) -> list[Record]:
    """Run the trials in a study that lives as long as this call.

    Ended trials are told to the study as they were, so that it prunes as if it had never stopped.
    """
    import optuna

    search, rounds = task.search, int(task.all_settings["num-rounds"])
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if search.rungs:
        first = math.ceil((rounds - task.warm_up) / search.reduction_factor**search.rungs)
        pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=max(1, first), reduction_factor=search.reduction_factor
        )
    study = optuna.create_study(pruner=pruner)  # no trial asks it for settings
    records: list[Record] = []
    for position, candidate in enumerate(task.candidates()):
        if sum(record["state"] != "diverged" for record in records) == search.trials:
            break
        if len(records) == 2 * search.trials:
            break
        run = _Run(task, candidate, position)
        is_new = run.record is None
        study.optimize(run, n_trials=1, catch=(Exception,))
        assert run.record is not None, "a trial that ends has a record"
        records.append(run.record)
        if is_new:
            log(f"{task.title}: trial {position + 1} of {search.trials}, {_text(run.record, task)}")
    return records


class _Run:
    """The objective of one trial: runs of one candidate with each seed of the search.

    Attributes
    ----------
    record : how the trial ended; None if it has not, or has failed in an earlier call.
    """

    def __init__(self, task: RowSearch, candidate: Candidate, position: int) -> None:
        self.task, self.candidate, self.position = task, candidate, position
        self.directory = task.directory / f"trial-{position:02d}"
        file = self.directory / RECORD
        record = json.loads(file.read_text()) if file.exists() else {"state": "failed"}
        self.record: Record | None = None if record["state"] == "failed" else record

    def __call__(self, trial: OptunaTrial) -> float:
        import optuna

        if self.record is None:
            self.record = self._run(trial)
        else:
            for step, value in self.record["reports"].items():
                self._report(trial, int(step), value)
        record = self.record
        if record["state"] == "failed":
            raise RuntimeError(record["reason"])
        if record["state"] != "complete":
            raise optuna.TrialPruned
        return float(record["value"])

    def _report(self, trial: OptunaTrial, step: int, value: float) -> bool:
        """Report the measure of a round after the warm-up; whether the trial is among the worse."""
        if step <= self.task.warm_up:
            return False
        trial.report(value, step - self.task.warm_up)
        return trial.should_prune()

    def _run(self, trial: OptunaTrial) -> Record:
        """Run the trial and record how it ended."""
        import optuna

        task, criterion = self.task, self.task.criterion
        reported: list[int] = []
        reports: dict[int, float] = {}
        lines_of_runs: list[list[Line]] = []
        state, reason = "complete", ""

        def report(lines: Lines) -> None:
            """Of the first run; the others belong to trials that no rung has ended."""
            for count in range(len(reported) + 1, len(lines) + 1):  # several after an interruption
                line, best = lines[count - 1], criterion.chosen(lines[:count])
                reported.append(line["round"])
                if best is None or not criterion.measures(line):
                    continue
                reports[line["round"]] = best[1]
                is_worse = self._report(trial, line["round"], best[1])
                if is_worse and line["round"] < config.num_rounds:
                    raise optuna.TrialPruned

        try:
            for seed in task.seeds:
                changed = {**task.base(), **self.candidate.changes, "seed": seed}
                config = task.config(changed, self.directory / f"seed-{seed}")
                lines_of_runs.append([])
                watch = report if seed == task.seed else None
                run_trial(config, task.num_clients, lines_of_runs[-1], watch)
        except optuna.TrialPruned:
            state = "pruned"
        except DivergedError:
            state = "diverged"
        except Exception as error:  # the other trials can still run
            state, reason = "failed", one_line(error)
        run, environment = RunDirectory(self.directory / f"seed-{task.seed}"), {}
        if (run.path / ENVIRONMENT).exists():  # else it did not begin
            environment = dict(run.read_json(ENVIRONMENT))
        values = [criterion.chosen(lines) for lines in lines_of_runs]
        measured = [one for one in values if one is not None]
        if state == "complete" and len(measured) < len(task.seeds):
            state, reason = "failed", f"no round has a {criterion.name} figure"
        record = {
            "trial": self.position,
            "state": state,
            "options": dict(self.candidate.options),
            "settings": dict(self.candidate.changes),
            "dropped": dict(self.candidate.dropped),
            "value": fmean(value for _, value in measured) if measured else None,
            "values": [value for _, value in measured],
            "round": measured[0][0] if measured else None,
            "rounds": sum(map(len, lines_of_runs)),
            "reports": {str(step): value for step, value in reports.items()},
            "seconds": sum(float(x.get("seconds") or 0) for run in lines_of_runs for x in run),
            "reason": reason,
            "environment": environment,
        }
        if state == "failed":
            shutil.rmtree(self.directory, ignore_errors=True)
        for folder in self.directory.glob("seed-*"):  # what an ended run no longer needs
            for path in [*folder.glob("*.safetensors"), *folder.glob("split.npz")]:
                path.unlink()
            RunDirectory(folder).remove_clients()
            shutil.rmtree(folder / "plots", ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.directory / RECORD, json.dumps(record) + "\n")
        return record


def run_trial(
    config: RunConfig, num_clients: int, lines: list[Line], watch: Callable[[Lines], None] | None
) -> None:
    """Run ``config``, or resume the run in ``config.output``.

    Parameters
    ----------
    lines : lines of all rounds are appended to it.
    watch : called with ``lines`` after every round; an exception that it raises ends the trial.

    Raises
    ------
    DivergedError
        If a loss or a weight is not finite.
    """
    from fedul_flwr.engine.in_process import run_in_process

    directory = RunDirectory(Path(config.output))
    ended: list[BaseException] = []

    def check(seen: Lines) -> None:
        try:
            lines[:] = [dict(line) for line in seen]
            if is_diverged(lines[-1]):
                raise DivergedError
            if watch is not None:
                watch(lines)
        except BaseException as error:
            ended.append(error)
            raise

    if not (directory.path / SUMMARY).exists():
        if (directory.path / LAST_MODEL).exists():
            config = resolve({"resume": str(directory.path)}, Path.cwd())
        try:
            run_in_process(config, num_clients, watch=check)
        except Exception as error:
            if error not in ended and _has_diverged(directory):  # the error follows from NaN
                raise DivergedError from None
            raise
    lines[:] = directory.read_metrics()
    if watch is not None:
        watch(lines)  # a run that was complete before this call


def _has_diverged(directory: RunDirectory) -> bool:
    """Whether the last model or its losses are not finite."""
    try:
        arrays, line = directory.load_model(LAST_MODEL)
    except UserError:
        return False
    numbers = [array for array in arrays.values() if np.issubdtype(array.dtype, np.floating)]
    return is_diverged(line) or not all(np.isfinite(array).all() for array in numbers)


def _text(record: Record, task: RowSearch) -> str:
    """The settings of a trial and how it ended, in one line."""
    tried = label(record["settings"]) if record["settings"] else "the experiment's settings"
    took = f"{record['rounds']} rounds, {record['seconds']:.0f} s"
    value = "–" if record["value"] is None else task.criterion.text(record["value"])
    ended = {
        "complete": f"{value} in round {record['round']}",
        "pruned": f"stopped at {value}",
        "diverged": "diverged",
        "failed": f"failed: {record['reason']}",
    }
    if len(task.seeds) > 1:
        ended["complete"] = f"{value}, mean of {len(task.seeds)} seeds"
    return f"{tried}: {ended[record['state']]} ({took})"


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """New processes; after an error or Ctrl-C they end at once and run no waiting task."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=follow_parent)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "spawn_main" in " ".join(process.cmdline()):
                    process.terminate()
        raise
    finally:
        pool.shutdown()
