"""The search of one row: Optuna draws, keeps and prunes its trials, one after the other."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Criterion
from fedul_flwr.experiments.search_space import Candidate, Overrides, Search, candidates, label
from fedul_flwr.experiments.search_trial import (
    DivergedError,
    Lines,
    drop_models,
    environment,
    run_trial,
)
from fedul_flwr.methods import find_method
from fedul_flwr.results.records import write_atomically

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

Say = Callable[[str], None]

IDENTITY, JOURNAL = "search.sha256", "study.log"
_CANDIDATE, _OUTCOME = "candidate", "outcome"


@dataclass(frozen=True)
class StudyTask:
    """What one study needs; it can be sent to another process.

    Attributes
    ----------
    row, column : which row of a table it searches; the column is empty beside tables.
    given : all settings of the row, as it would run here.
    num_clients : number of clients.
    directory : of the trials and of Optuna's journal.
    search, criterion, seed : what is tried and measured; the seed is that of the drawing and of
        every trial.
    identity : digest of all that the result depends on. What is left of another search is removed.
    """

    row: str
    column: str
    given: Overrides
    num_clients: int
    directory: Path
    search: Search
    criterion: Criterion
    seed: int
    identity: str

    @property
    def title(self) -> str:
        """The row in words."""
        return f"{self.column}, {self.row}" if self.column else self.row

    def base(self) -> Overrides:
        """Settings of the trial that changes nothing."""
        return {**self.given, **self.criterion.settings(), "seed": self.seed}

    def config(self, flat: Overrides, output: Path | None = None) -> RunConfig:
        """Checked settings of a run.

        Raises
        ------
        UserError
            If they, or their method, refuse one.
        """
        config = resolve({**flat, "output": ""}, Path.cwd())
        load_reference(find_method(config.method).strategy, "method").validate(config)
        return config.model_copy(update={"output": "" if output is None else str(output)})

    def candidates(self) -> list[Candidate]:
        """What its trials try."""
        return candidates(
            self.search, self.seed, self.base(), lambda flat: self.config(flat).to_flat()
        )


def run_study(task: StudyTask, say: Say) -> list[dict[str, Any]]:
    """Run the trials that have no outcome yet, and say how each ended.

    A trial that failed is tried again; one that was interrupted goes on after its last round.

    Returns
    -------
    A record of each trial, in the order of the candidates.

    Raises
    ------
    UserError
        If another process is at work on the same study.
    """
    quiet()
    directory = task.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(directory.with_name(f".{directory.name}.lock"), timeout=0):
            return _run_missing(task, say)
    except Timeout:
        raise UserError(f"Another search is at work in {directory}: wait for its end.") from None


def _run_missing(task: StudyTask, say: Say) -> list[dict[str, Any]]:
    _prepare(task)
    study = _open(task)
    tried = task.candidates()
    records = []
    for position, candidate in enumerate(tried):
        known = _latest(study, position)
        if known is None or known.user_attrs.get(_OUTCOME, {}).get("state") == "failed":
            study.enqueue_trial(dict(candidate.options), user_attrs={_CANDIDATE: position})
            known = None
        if known is None or _OUTCOME not in known.user_attrs:
            trial = _begin(study, task, candidate, position)
            outcome = _run(task, candidate, position, trial)
            say(f"{task.title}: trial {position + 1} of {len(tried)}, {_said(outcome, task)}")
        else:
            outcome = known.user_attrs[_OUTCOME]
        records.append(outcome)
    return records


def quiet() -> None:
    """Leave out what Flower and Optuna log of every run."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("flwr").setLevel(logging.ERROR)


def _prepare(task: StudyTask) -> None:
    mark = task.directory / IDENTITY
    if task.directory.exists() and not (mark.exists() and mark.read_text() == task.identity):
        shutil.rmtree(task.directory)
    task.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, task.identity)


def _open(task: StudyTask) -> Study:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    search = task.search
    rounds = int(task.given["num-rounds"])
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if search.rungs:
        first = -(-rounds // search.reduction_factor**search.rungs)  # rounded up
        pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=first, reduction_factor=search.reduction_factor
        )
    return optuna.create_study(
        study_name="search",
        storage=JournalStorage(JournalFileBackend(str(task.directory / JOURNAL))),
        # The candidates are in the queue: nothing is left to a sampler.
        sampler=optuna.samplers.RandomSampler(seed=task.seed),
        pruner=pruner,
        load_if_exists=True,
    )


def _latest(study: Study, position: int) -> FrozenTrial | None:
    found = [t for t in study.get_trials(deepcopy=False) if t.user_attrs[_CANDIDATE] == position]
    return found[-1] if found else None


def _begin(study: Study, task: StudyTask, candidate: Candidate, position: int) -> Trial:
    """The trial of a candidate: the next in the queue, or the one that was interrupted."""
    import optuna

    known = _latest(study, position)
    assert known is not None, "it is in the queue"
    if known.state == optuna.trial.TrialState.RUNNING:
        return optuna.trial.Trial(study, known._trial_id)
    trial = study.ask()
    assert trial.number == known.number, "the queue has one trial at a time"
    for name in candidate.options:
        trial.suggest_categorical(name, task.search.labels(name))
    return trial


def _run(task: StudyTask, candidate: Candidate, position: int, trial: Trial) -> dict[str, Any]:
    """Run a trial and keep how it ended."""
    import optuna

    directory = task.directory / f"trial-{position:02d}"
    config = task.config({**task.base(), **candidate.changes}, directory)
    seen: Lines = ()

    def judge(lines: Lines) -> None:
        nonlocal seen
        seen = [dict(line) for line in lines]
        step, kept = lines[-1]["round"], task.criterion.kept(lines)
        if kept is None or lines[-1].get(task.criterion.key) is None:
            return
        if step not in trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
            trial.report(kept[1], step)
        if step < config.num_rounds and trial.should_prune():
            raise optuna.TrialPruned

    state, reason = "complete", ""
    try:
        seen = run_trial(config, task.num_clients, judge)
    except optuna.TrialPruned:
        state = "pruned"
    except DivergedError:
        state = "diverged"
    except Exception as error:  # whatever it is, other trials can still run
        state = "failed"
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        reason = " ".join(text.split())
    kept = task.criterion.kept(seen)
    if state == "complete" and kept is None:
        state, reason = "failed", f"no round has a {task.criterion.name} figure"
    outcome = {
        "trial": position,
        "state": state,
        "options": dict(candidate.options),
        "settings": dict(candidate.changes),
        "dropped": dict(candidate.dropped),
        "value": None if kept is None else kept[1],
        "round": None if kept is None else kept[0],
        "rounds": len(seen),
        "reports": {
            str(step): value for step, value in study_values(trial.study, trial.number).items()
        },
        "seconds": sum(float(line.get("seconds") or 0) for line in seen),
        "reason": reason,
        "environment": dict(environment(directory)),
    }
    _tell(trial, outcome)
    if state == "failed":
        shutil.rmtree(directory, ignore_errors=True)
    else:
        drop_models(directory)
    return outcome


def study_values(study: Study, number: int) -> Mapping[int, float]:
    """What a trial reported, by round."""
    return study.get_trials(deepcopy=False)[number].intermediate_values


def _tell(trial: Trial, outcome: Mapping[str, Any]) -> None:
    """Keep the outcome with Optuna: the whole of it first, so that it is there if a trial ended."""
    from optuna.trial import TrialState

    trial.set_user_attr(_OUTCOME, dict(outcome))
    states = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}
    state = states.get(outcome["state"], TrialState.PRUNED)
    value = outcome["value"] if state == TrialState.COMPLETE else None
    trial.study.tell(trial, value, state)


def best_of(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The complete trial with the least value, of equals the earliest; None without any."""
    complete = [record for record in records if record["state"] == "complete"]
    return min(complete, key=lambda record: float(record["value"]), default=None)


def _said(outcome: Mapping[str, Any], task: StudyTask) -> str:
    """How a trial ended, in one line."""
    what = label(outcome["settings"]) if outcome["settings"] else "the experiment's settings"
    took = f"{outcome['rounds']} rounds, {outcome['seconds']:.0f} s"
    value = "–" if outcome["value"] is None else task.criterion.text(outcome["value"])
    ended = {
        "complete": f"{value} in round {outcome['round']}",
        "pruned": f"stopped at {value}",
        "diverged": "diverged",
        "failed": f"failed: {outcome['reason']}",
    }
    return f"{what}: {ended[outcome['state']]} ({took})"
