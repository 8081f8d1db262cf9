"""Searches of rows: the trials of a row run one after the other in its Optuna study."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from filelock import FileLock, Timeout

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, keys_in_use, resolve
from fedul_flwr.data.run_files.records import Line, read_metrics
from fedul_flwr.data.run_files.run import ENVIRONMENT, METRICS, SUMMARY, Run
from fedul_flwr.engine.shell import flower_logs, follow_parent
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.runs_file import provenance
from fedul_flwr.experiments.search_space import (
    Candidate,
    Criterion,
    Name,
    Search,
    candidates,
    is_diverged,
    label,
    make_criterion,
)
from fedul_flwr.experiments.studies import (
    best_of,
    journal,
    read_studies,
    same_search,
    state_of,
    study_name,
    trials_table,
)
from fedul_flwr.experiments.trial import Log, Trial, one_line, prepare_directory
from fedul_flwr.experiments.trial_plan import Overrides, Plan, slug
from fedul_flwr.federated.strategy import validate
from fedul_flwr.run.callbacks import Callback

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

TRIALS = Path("runs/tune")
"""Directory of the trials of tables, below the working directory."""
SEED_STEP = 1000
"""A trial's runs have the seeds s, s + 1000, …, so that the numbers after s stay fresh."""
_WARM_UPS = ("warm-up-rounds", "ramp-up-rounds", "labels-only-rounds")
"""Last words of the settings that say in how many first rounds a method is not yet itself."""

Lines = Sequence[Line]


class DivergedError(Exception):
    """A loss or a weight of a trial is not finite."""


@dataclass(frozen=True)
class Searches:
    """What is searched, the directory of the trials, and the file of the studies of ``size``."""

    search: Search
    criterion: Name
    directory: Path
    file: Path
    size: str = ""


@dataclass(frozen=True)
class RowSearch:
    """The search of a row; it can be sent to another process.

    Attributes
    ----------
    trial : the row with the seed of the search.
    all_settings : all flat settings of the row on this computer.
    criterion : the measure to compare trials by.
    """

    trial: Trial
    all_settings: Overrides
    num_clients: int
    criterion: Criterion
    what: Searches

    @property
    def search(self) -> Search:
        """The settings to try."""
        return self.what.search

    @property
    def directory(self) -> Path:
        """Directory of its trials."""
        row = Path(slug(self.trial.column), slug(self.trial.row))
        return Path.cwd() / self.what.directory / row

    @property
    def name(self) -> str:
        """Name of its study."""
        return study_name(self.trial.row, self.trial.column, self.what.size)

    @property
    def title(self) -> str:
        """Column and row for messages."""
        return ", ".join(filter(None, (self.trial.column, self.trial.row)))

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs of every trial."""
        return [self.trial.seed + SEED_STEP * k for k in range(self.search.seeds)]

    @property
    def warm_up(self) -> int:
        """First rounds that no rung judges: the method's warm-up, at most half of the rounds."""
        used = keys_in_use(dict(self.all_settings))
        rounds = [v for k, v in self.all_settings.items() if k in used and k.endswith(_WARM_UPS)]
        numbers = [value for value in rounds if isinstance(value, int)]
        return min(max(numbers, default=0), int(self.all_settings["num-rounds"]) // 2)

    @property
    def definition(self) -> dict[str, Any]:
        """All that a trial's result depends on, as JSON has it; more trials go on with a study."""
        content = {
            "settings": dict(self.trial.settings),
            "search": {k: v for k, v in asdict(self.search).items() if k != "trials"},
            "criterion": self.criterion.name,
            "selection": self.criterion.selection,
            "content": dict(self.trial.content),
        }
        return dict(json.loads(json.dumps(content)))

    @property
    def also(self) -> dict[str, str]:
        """Settings with which a run chooses its round as the trials did."""
        chooses = self.criterion.selection
        is_validated = self.criterion.name == "validation" or chooses != self.criterion.name
        as_the_row = self.all_settings["selection"] == chooses
        return {} if is_validated or as_the_row else {"selection": chooses}

    def base(self) -> Overrides:
        """Settings of the trial that changes nothing."""
        return {**self.all_settings, **self.criterion.settings(), "seed": self.trial.seed}

    def config(self, flat: Overrides, output: Path | None = None) -> RunConfig:
        """Check the settings of a trial."""
        config = resolve({**flat, "output": ""}, Path.cwd())
        validate(config)
        return config.model_copy(update={"output": "" if output is None else str(output)})

    def candidates(self) -> Iterator[Candidate]:
        """The settings of its trials in their order; more than it needs, as some diverge."""
        return candidates(
            self.search, self.trial.seed, self.base(), lambda flat: self.config(flat).to_flat()
        )


def plan_searches(plans: Sequence[Plan], rows: Sequence[str], what: Searches) -> list[RowSearch]:
    """Plan the searches of ``rows`` in plans that have the search's seed alone."""
    tasks = []
    for plan in plans:
        trials = [trial for trial in plan.trials if trial.row in rows]
        if plan.start is not None and trials:
            raise UserError(
                f"Column {plan.column!r} starts from the model of another run, which no search "
                "covers: leave it out with --columns.",
                "nothing-to-search",
            )
        tasks += [_row_search(trial, plan.num_clients, what) for trial in trials]
    return tasks


def _row_search(trial: Trial, num_clients: int, what: Searches) -> RowSearch:
    try:
        flat = {key: v for key, v in trial.config.to_flat().items() if key != "output"}
        in_use = keys_in_use(flat)
        settings = flat | {key: v for key, v in what.search.settings.items() if key in in_use}
        measure = make_criterion(what.criterion, trial.config, resolve(settings, Path.cwd()))
        task = RowSearch(trial, settings, num_clients, measure, what)
        task.config(task.base())
    except UserError as error:
        where = f"Row {trial.row!r}" + (f", column {trial.column!r}" if trial.column else "")
        raise UserError(f"{where}: {error}", error.code, **error.values) from None
    return task


def run_searches(tasks: Sequence[RowSearch], jobs: int, log: Log) -> int:
    """Search ``jobs`` rows at a time, and print the trials of each; how many trials failed.

    The trials of one row run one after the other, so that no clock decides which of them stop
    early.
    """
    failed = 0
    for task, count in _ended(tasks, jobs, log):
        failed += count
        study = read_studies(task.what.file)[task.name]
        log(f"{task.title}:\n{trials_table(study).to_string(index=False)}")
        best = best_of(study)
        if best is None or best.value is None:
            log(f"{task.title}: no trial was complete, so no settings are chosen.")
        else:
            text = task.criterion.text(best.value)
            log(f"{task.title}: trial {best.user_attrs['position'] + 1} is chosen, {text}.")
    return failed


def _ended(tasks: Sequence[RowSearch], jobs: int, log: Log) -> Iterator[tuple[RowSearch, int]]:
    """Searches that have ended, with the number of their trials that failed."""
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, run_search(task, log)
        return
    with _processes(min(jobs, len(tasks))) as pool:
        waiting = {pool.submit(run_search, one, partial(print, flush=True)): one for one in tasks}
        for future in as_completed(waiting):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                raise UserError(
                    "A process of the search was killed, perhaps because memory ran out. The same "
                    "command resumes the search; fewer --jobs need less memory.",
                    "search-failed",
                ) from None


def run_search(task: RowSearch, log: Log) -> int:
    """Run the trials that have not ended yet, and print how each ended; how many failed.

    A trial that failed in an earlier call runs again; an interrupted trial resumes after its last
    complete round. A trial that diverges does not count: another one takes its place, as long as
    the space has new points and no more than half of the trials have diverged.
    """
    folder = task.directory
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0)
    try:
        with flower_logs(logging.ERROR), lock:
            prepare_directory(folder, task.definition)
            return _run_trials(open_study(task), task, log)
    except Timeout:
        raise UserError(
            f"Another search is running in {folder}: wait for its end.", "run-in-use"
        ) from None


def open_study(task: RowSearch) -> Study:
    """The study of a row; one of another search makes way, but its seeds count as seen."""
    storage = journal(task.what.file)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rounds, search = int(task.all_settings["num-rounds"]), task.search
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if search.rungs:
        first = math.ceil((rounds - task.warm_up) / search.reduction_factor**search.rungs)
        pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=max(1, first), reduction_factor=search.reduction_factor
        )
    options: dict[str, Any] = {"study_name": task.name, "storage": storage, "pruner": pruner}
    study = optuna.create_study(**options, load_if_exists=True)
    stored = study.user_attrs
    if not same_search(stored.get("definition"), task.definition):
        optuna.delete_study(study_name=task.name, storage=storage)
        study = optuna.create_study(**options)
        for key, value in {
            "row": task.trial.row,
            "column": task.trial.column,
            "seeds": sorted({*task.seeds, *stored.get("seeds", ())}),
            "also": task.also,
            "definition": task.definition,
        }.items():
            study.set_user_attr(key, value)
    return study


def _run_trials(study: Study, task: RowSearch, log: Log) -> int:
    counted = failed = 0
    ended = {
        trial.user_attrs["position"]: trial
        for trial in study.get_trials(deepcopy=False)
        if state_of(trial) not in ("running", "failed")
    }
    for position, candidate in enumerate(task.candidates()):
        if task.search.trials == counted or position == 2 * task.search.trials:
            break
        if position not in ended:
            trial = ended[position] = _Run(study, task, candidate, position).trial()
            text = f"trial {position + 1} of {task.search.trials}, {_text(trial, task)}"
            log(f"{task.title}: {text}")
        state = state_of(ended[position])
        counted += state != "diverged"
        failed += state == "failed"
    return failed


class _Run:
    """One trial: runs of one candidate with each seed of the search."""

    def __init__(self, study: Study, task: RowSearch, candidate: Candidate, position: int) -> None:
        from optuna.distributions import CategoricalDistribution
        from optuna.trial import Trial, TrialState, create_trial

        self.study, self.task, self.candidate = study, task, candidate
        self.directory = task.directory / f"trial-{position:02d}"

        def running() -> list[FrozenTrial]:
            trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            return [one for one in trials if one.user_attrs["position"] == position]

        if not running():  # else it was interrupted
            new = create_trial(
                state=TrialState.RUNNING,
                params=dict(candidate.options),
                distributions={
                    name: CategoricalDistribution(task.search.labels(name))
                    for name in candidate.options
                },
                user_attrs={
                    "position": position,
                    "settings": dict(candidate.changes),
                    "dropped": dict(candidate.dropped),
                },
            )
            study.add_trial(new)
        (stored,) = running()
        self.number, self.reported = stored.number, {*stored.intermediate_values}
        self.optuna = Trial(study, stored._trial_id)

    def trial(self) -> FrozenTrial:
        """Run the trial, and tell the study how it ended."""
        import optuna
        from optuna.trial import TrialState

        task, criterion = self.task, self.task.criterion
        lines_of_runs: list[list[Line]] = []
        state, about = TrialState.COMPLETE, dict[str, Any]()
        try:
            for seed in task.seeds:
                changed = {**task.base(), **self.candidate.changes, "seed": seed}
                config = task.config(changed, self.directory / f"seed-{seed}")
                lines_of_runs.append([])
                # The first run alone is judged; the others are of trials that no rung has ended.
                watch = self._judge(config.num_rounds) if seed == task.trial.seed else None
                run_trial(config, task.num_clients, lines_of_runs[-1], watch)
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except DivergedError:
            state, about = TrialState.PRUNED, {"diverged": True}
        except Exception as error:  # the other trials can still run
            state, about = TrialState.FAIL, {"reason": one_line(error)}
        values = [criterion.chosen(lines) for lines in lines_of_runs]
        measured = [one for one in values if one is not None]
        if state == TrialState.COMPLETE and len(measured) < len(task.seeds):
            reason = f"no round has a {criterion.name} figure"
            state, about = TrialState.FAIL, {"reason": reason}
        about |= {
            "values": [value for _, value in measured],
            "round": measured[0][0] if measured else None,
            "rounds": sum(map(len, lines_of_runs)),
            "seconds": sum(float(x.get("seconds") or 0) for run in lines_of_runs for x in run),
        }
        self._note_origin()
        self._clean(state == TrialState.FAIL)
        for key, value in about.items():
            self.optuna.set_user_attr(key, value)
        value = fmean(about["values"]) if state == TrialState.COMPLETE else None
        return self.study.tell(self.number, value, state)

    def _judge(self, last: int) -> Callable[[Lines], None]:
        """After each round, report the measure and end a trial that is among the worse."""
        import optuna

        task, criterion = self.task, self.task.criterion
        seen = 0

        def judge(lines: Lines) -> None:
            nonlocal seen
            for count in range(seen + 1, len(lines) + 1):  # several after an interruption
                line, best = lines[count - 1], criterion.chosen(lines[:count])
                seen, step = count, line["round"] - task.warm_up
                if best is None or not criterion.measures(line) or step <= 0:
                    continue
                if step in self.reported:
                    continue
                self.optuna.report(best[1], step)
                if self.optuna.should_prune() and line["round"] < last:
                    raise optuna.TrialPruned

        return judge

    def _note_origin(self) -> None:
        """Note in the study the commit, hardware and versions of its first trial."""
        directory = self.directory / f"seed-{self.task.trial.seed}"
        if "origin" not in self.study.user_attrs and (directory / ENVIRONMENT).exists():
            origin = provenance(Run.read(directory).environment, datetime.now(UTC))
            self.study.set_user_attr("origin", origin)

    def _clean(self, has_failed: bool) -> None:
        """Remove what an ended run no longer needs."""
        if has_failed:
            shutil.rmtree(self.directory, ignore_errors=True)
        for folder in self.directory.glob("seed-*"):
            for path in [*folder.glob("*.safetensors"), *folder.glob("split.*")]:
                path.unlink()
            Run(path=folder).remove_clients()
            shutil.rmtree(folder / "plots", ignore_errors=True)


def run_trial(
    config: RunConfig, num_clients: int, lines: list[Line], watch: Callable[[Lines], None] | None
) -> None:
    """Run ``config``, or resume the run in ``config.output``; ``lines`` gets those of all rounds.

    ``watch`` sees them after every round; an exception of it, or DivergedError, ends the trial.
    """
    from fedul_flwr.engine.in_process import run_in_process
    from fedul_flwr.learning.local import LOSS_NOT_FINITE

    run = Run(path=Path(config.output))
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

    if not (run.path / SUMMARY).exists():
        if (run.path / LAST_MODEL).exists():
            config = resolve({"resume": str(run.path)}, Path.cwd())
        try:
            run_in_process(config, num_clients, callbacks=[_Check(check)])
        except Exception as error:
            at_client = LOSS_NOT_FINITE in str(error)
            # Or the error follows from NaN.
            if error not in ended and (at_client or _has_diverged(run)):
                raise DivergedError from None
            raise
    lines[:] = read_metrics(run.path / METRICS)
    if watch is not None:
        watch(lines)  # a run that was complete before this call


class _Check(Callback):
    """Shows all lines so far to a function."""

    def __init__(self, check: Callable[[Lines], None]) -> None:
        self._check = check

    def begin(self, lines: Lines) -> None:
        """Those of a run that goes on."""
        if lines:
            self._check(lines)

    def recorded(self, lines: Lines) -> None:
        """With the round's own."""
        self._check(lines)


def _has_diverged(run: Run) -> bool:
    """Whether the last model or its losses are not finite."""
    try:
        arrays, line = run.load_model(LAST_MODEL)
    except UserError:
        return False
    numbers = [array for array in arrays.values() if np.issubdtype(array.dtype, np.floating)]
    return is_diverged(line) or not all(np.isfinite(array).all() for array in numbers)


def _text(trial: FrozenTrial, task: RowSearch) -> str:
    """The settings of a trial and how it ended, in one line."""
    about = trial.user_attrs
    tried = label(about["settings"]) if about["settings"] else "the experiment's settings"
    took = f"{about['rounds']} rounds, {about['seconds']:.0f} s"
    value = "–" if trial.value is None else task.criterion.text(trial.value)
    ended = {
        "complete": f"{value} in round {about['round']}",
        "pruned": f"stopped at {value}",
        "diverged": "diverged",
        "failed": f"failed: {about.get('reason')}",
    }
    if len(task.seeds) > 1:
        ended["complete"] = f"{value}, mean of {len(task.seeds)} seeds"
    return f"{tried}: {ended[state_of(trial)]} ({took})"


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
