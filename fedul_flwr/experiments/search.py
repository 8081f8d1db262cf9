"""Searches of rows: the trials of a row run one after the other in its Optuna study."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
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
from fedul_flwr.data.run_files.records import Line, criterion_value, read_metrics
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
from fedul_flwr.experiments.trial_plan import Overrides, prefixed, slug
from fedul_flwr.federated.strategy import validate
from fedul_flwr.run.callbacks import Callback

if TYPE_CHECKING:
    import optuna

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
class RowSearch:
    """The search of a row; it can be sent to another process.

    Attributes
    ----------
    trial : the row with the seed of the search.
    settings : all flat settings of the row on this computer.
    criterion : the measure to compare trials by.
    folder, file : directory of the trials of all rows, and the file of the studies.
    size : size of a table's rows.
    """

    trial: Trial
    settings: Overrides
    search: Search
    criterion: Criterion
    folder: Path
    file: Path
    size: str = ""

    @property
    def directory(self) -> Path:
        """Directory of its trials."""
        return Path.cwd() / self.folder / slug(self.trial.column) / slug(self.trial.row)

    @property
    def name(self) -> str:
        """Name of its study."""
        return study_name(self.trial.row, self.trial.column, self.size)

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
        used = keys_in_use(dict(self.settings))
        rounds = [v for k, v in self.settings.items() if k in used and k.endswith(_WARM_UPS)]
        numbers = [value for value in rounds if isinstance(value, int)]
        return min(max(numbers, default=0), int(self.settings["num-rounds"]) // 2)

    @property
    def definition(self) -> dict[str, Any]:
        """All that a trial's result depends on, as JSON has it; more trials go on with a study."""
        content = {
            **self.trial.definition,
            "search": {k: v for k, v in asdict(self.search).items() if k != "trials"},
            "criterion": self.criterion.name,
            "selection": self.criterion.selection,
        }
        return dict(json.loads(json.dumps(content)))

    @property
    def also(self) -> dict[str, str]:
        """Settings with which a run chooses its round as the trials did."""
        chooses = self.criterion.selection
        is_validated = self.criterion.name == "validation" or chooses != self.criterion.name
        as_the_row = self.settings["selection"] == chooses
        return {} if is_validated or as_the_row else {"selection": chooses}

    def base(self) -> Overrides:
        """Settings of the trial that changes nothing."""
        return {**self.settings, **self.criterion.settings(), "seed": self.trial.seed}

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


def plan_search(
    trial: Trial, search: Search, criterion: Name, folder: Path, file: Path, size: str = ""
) -> RowSearch:
    """Plan the search of a row; the trial has the seed of the search."""
    if trial.start is not None:
        raise UserError(
            f"Column {trial.column!r} starts from the model of another run, which no search "
            "covers: leave it out with --columns.",
            "nothing-to-search",
        )
    with prefixed(f"Row {trial.row!r}" + f", column {trial.column!r}" * bool(trial.column)):
        flat = {key: v for key, v in trial.config.to_flat().items() if key != "output"}
        in_use = keys_in_use(flat)
        settings = flat | {key: v for key, v in search.settings.items() if key in in_use}
        measure = make_criterion(criterion, trial.config, resolve(settings, Path.cwd()))
        task = RowSearch(trial, settings, search, measure, folder, file, size)
        task.config(task.base())
    return task


def run_searches(tasks: Sequence[RowSearch], jobs: int, log: Log) -> int:
    """Search ``jobs`` rows at a time, and print the trials of each; how many trials failed.

    The trials of one row run one after the other, so that no clock decides which of them stop
    early.
    """
    failed = 0
    for task, count in _ended(tasks, jobs, log):
        failed += count
        study = read_studies(task.file)[task.name]
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


def run_search(task: RowSearch, log: Log) -> int:
    """Run the trials that have not ended yet, and print how each ended; how many failed.

    A trial that failed in an earlier call runs again; an interrupted trial resumes after its last
    complete round. A trial that diverges does not count: another one takes its place, as long as
    the space has new points and no more than half of the trials have diverged.
    """
    folder, trials = task.directory, task.search.trials
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0)
    try:
        with flower_logs(logging.ERROR), lock:
            prepare_directory(folder, task.definition)
            study = open_study(task)
            ended = {
                trial.user_attrs["position"]: trial
                for trial in study.get_trials(deepcopy=False)
                if state_of(trial) not in ("waiting", "running", "failed")
            }
            counted = failed = 0
            for position, candidate in enumerate(task.candidates()):
                if trials == counted or position == 2 * trials:
                    break
                if position not in ended:
                    ended[position] = _run_trial(study, task, candidate, position)
                    text = f"trial {position + 1} of {trials}, {_text(ended[position], task)}"
                    log(f"{task.title}: {text}")
                state = state_of(ended[position])
                counted += state != "diverged"
                failed += state == "failed"
            return failed
    except Timeout:
        raise UserError(
            f"Another search is running in {folder}: wait for its end.", "run-in-use"
        ) from None


def open_study(task: RowSearch) -> optuna.Study:
    """The study of a row; one of another search makes way, but its seeds count as seen."""
    storage = journal(task.file)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rounds, search = int(task.settings["num-rounds"]), task.search
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


def _ask(study: optuna.Study, candidate: Candidate, task: RowSearch, position: int) -> optuna.Trial:
    """A new trial of the study, or one that was interrupted."""
    import optuna

    unfinished = optuna.trial.TrialState.RUNNING, optuna.trial.TrialState.WAITING
    begun = [
        trial
        for trial in study.get_trials(deepcopy=False, states=unfinished)
        if trial.user_attrs["position"] == position
    ]
    if not begun:
        about = {"settings": dict(candidate.changes), "dropped": dict(candidate.dropped)}
        study.enqueue_trial(dict(candidate.options), {"position": position, **about})
    running = [trial for trial in begun if trial.state == optuna.trial.TrialState.RUNNING]
    asked = optuna.trial.Trial(study, running[0]._trial_id) if running else study.ask()
    for name in candidate.options:
        asked.suggest_categorical(name, [*map(label, task.search.space[name])])
    return asked


def _run_trial(
    study: optuna.Study, task: RowSearch, candidate: Candidate, position: int
) -> optuna.trial.FrozenTrial:
    """Run the runs of a candidate with each seed, and tell the study how the trial ended."""
    trial = _ask(study, candidate, task, position)
    import optuna
    from optuna.trial import TrialState

    directory = task.directory / f"trial-{position:02d}"
    watches: list[Watch] = []
    state, about = TrialState.COMPLETE, dict[str, Any]()
    try:
        for seed in task.seeds:
            changed = {**task.base(), **candidate.changes, "seed": seed}
            config = task.config(changed, directory / f"seed-{seed}")
            # The first run alone is judged; the others are of trials that no rung has ended.
            judged = trial if seed == task.trial.seed else None
            watches.append(Watch(task.criterion, task.warm_up, config.num_rounds, judged))
            run_watched(config, task.trial.clients, watches[-1])
    except optuna.TrialPruned:
        state = TrialState.PRUNED
    except DivergedError:
        state, about = TrialState.PRUNED, {"diverged": True}
    except Exception as error:  # the other trials can still run
        state, about = TrialState.FAIL, {"reason": one_line(error)}
    measured = [one for watch in watches if (one := task.criterion.chosen(watch.lines))]
    if state == TrialState.COMPLETE and len(measured) < len(task.seeds):
        reason = f"no round has a {task.criterion.name} figure"
        state, about = TrialState.FAIL, {"reason": reason}
    lines = [line for watch in watches for line in watch.lines]
    about |= {
        "values": [value for _, value in measured],
        "round": measured[0][0] if measured else None,
        "rounds": len(lines),
        "seconds": sum(float(line.get("seconds") or 0) for line in lines),
    }
    first = directory / f"seed-{task.trial.seed}"
    if "origin" not in study.user_attrs and (first / ENVIRONMENT).exists():
        origin = provenance(Run.read(first).environment, datetime.now(UTC))
        study.set_user_attr("origin", origin)
    _clean(directory, has_failed=state == TrialState.FAIL)
    for key, value in about.items():
        trial.set_user_attr(key, value)
    value = fmean(about["values"]) if state == TrialState.COMPLETE else None
    return study.tell(trial, value, state)


def _clean(directory: Path, *, has_failed: bool) -> None:
    """Remove what an ended trial no longer needs."""
    if has_failed:
        shutil.rmtree(directory, ignore_errors=True)
    for folder in directory.glob("seed-*"):
        for path in [*folder.glob("*.safetensors"), *folder.glob("split.*")]:
            path.unlink()
        Run(path=folder).remove_clients()
        shutil.rmtree(folder / "plots", ignore_errors=True)


class Watch(Callback):
    """Follows a run of a trial, and ends it if it diverges, or is judged and among the worse.

    Attributes
    ----------
    lines : all lines of the run so far.
    """

    def __init__(
        self,
        criterion: Criterion,
        warm_up: int = 0,
        last: int = 0,
        judged: optuna.Trial | None = None,
    ) -> None:
        self.lines: list[Line] = []
        self._criterion, self._warm_up, self._last, self._judged = criterion, warm_up, last, judged
        frozen = judged and judged.study.get_trials(deepcopy=False)[judged.number]
        self._reported = {*frozen.intermediate_values} if frozen else set()

    def begin(self, lines: Lines) -> None:
        """The lines of a run that goes on."""
        if lines:
            self.recorded(lines)

    def recorded(self, lines: Lines) -> None:
        """With the round's own; after an interruption several are new."""
        self.lines = [dict(line) for line in lines]
        if is_diverged(lines[-1]):
            raise DivergedError
        for count, line in enumerate(self.lines, start=1) if self._judged else ():
            step = line["round"] - self._warm_up
            measured = criterion_value(line, self._criterion.name) is not None
            if step <= 0 or step in self._reported or not measured:
                continue
            if best := self._criterion.chosen(self.lines[:count]):
                self._report(best[1], step, is_last=line["round"] >= self._last)

    def _report(self, value: float, step: int, *, is_last: bool) -> None:
        import optuna

        assert self._judged is not None
        self._reported.add(step)
        self._judged.report(value, step)
        if self._judged.should_prune() and not is_last:
            raise optuna.TrialPruned


def run_watched(config: RunConfig, clients: int, watch: Watch) -> None:
    """Run ``config``, or resume the run in ``config.output``, and show it to ``watch``.

    Raises
    ------
    DivergedError
        If a loss or a weight is not finite.
    """
    from fedul_flwr.engine.in_process import run_in_process
    from fedul_flwr.learning.local import LOSS_NOT_FINITE

    run = Run(path=Path(config.output))
    if not (run.path / SUMMARY).exists():
        if (run.path / LAST_MODEL).exists():
            config = resolve({"resume": str(run.path)}, Path.cwd())
        try:
            run_in_process(config, clients, callbacks=[watch])
        except Exception as error:
            # Of a client, or the error follows from NaN.
            if LOSS_NOT_FINITE in str(error) or _has_diverged(run):
                raise DivergedError from None
            raise
    if lines := read_metrics(run.path / METRICS):
        watch.recorded(lines)  # also of a run that was complete before this call


def _has_diverged(run: Run) -> bool:
    """Whether the last model or its losses are not finite."""
    try:
        arrays, line = run.load_model(LAST_MODEL)
    except UserError:
        return False
    numbers = [array for array in arrays.values() if np.issubdtype(array.dtype, np.floating)]
    return is_diverged(line) or not all(np.isfinite(array).all() for array in numbers)


def _text(trial: optuna.trial.FrozenTrial, task: RowSearch) -> str:
    """The settings of a trial and how it ended, in one line."""
    about, state = trial.user_attrs, state_of(trial)
    tried = label(about["settings"]) if about["settings"] else "the experiment's settings"
    value = "–" if trial.value is None else task.criterion.text(trial.value)
    several = f", mean of {len(task.seeds)} seeds"
    ended = {
        "complete": value + (several if len(task.seeds) > 1 else f" in round {about['round']}"),
        "pruned": f"stopped at {value}",
        "failed": f"failed: {about.get('reason')}",
    }
    took = f"{about['rounds']} rounds, {about['seconds']:.0f} s"
    return f"{tried}: {ended.get(state, state)} ({took})"
