"""The search of one row: its trials run one after the other in an Optuna study."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.engine.flower_logs import flower_logs
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Criterion
from fedul_flwr.experiments.run_trials import Say
from fedul_flwr.experiments.search_space import Candidate, SearchSettings, candidates, label
from fedul_flwr.experiments.search_trial import (
    DivergedError,
    Lines,
    read_environment,
    remove_models,
    run_trial,
)
from fedul_flwr.experiments.trial import digest, one_line, prepare_directory
from fedul_flwr.experiments.trial_plan import Overrides
from fedul_flwr.methods import find_method

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

IDENTITY, JOURNAL = "search.sha256", "study.log"
_CANDIDATE, _OUTCOME = "candidate", "outcome"


@dataclass(frozen=True)
class RowSearch:
    """The definition of a row's search; it can be sent to another process.

    Attributes
    ----------
    row, column : the row; the column is empty in a comparison of runs.
    settings : settings by which the stored search is recognized, see ``Trial.settings``.
    given : all flat settings of the row on this computer.
    num_clients : number of clients.
    directory : directory of the trials and of Optuna's journal.
    search, criterion : the settings to try, and the measure to compare them by.
    seed : seed of the drawn points and of every trial.
    content : digests of the user's files and modules, see ``Trial.content``.
    """

    row: str
    column: str
    settings: Mapping[str, Scalar]
    given: Overrides
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
        return {**self.given, **self.criterion.settings(), "seed": self.seed}

    def config(self, flat: Overrides, output: Path | None = None) -> RunConfig:
        """Check the settings of a trial.

        Raises
        ------
        UserError
            If the settings, or the method, refuse one.
        """
        config = resolve({**flat, "output": ""}, Path.cwd())
        load_reference(find_method(config.method).strategy, "method").validate(config)
        return config.model_copy(update={"output": "" if output is None else str(output)})

    def candidates(self) -> list[Candidate]:
        """The settings of its trials."""
        return candidates(
            self.search, self.seed, self.base(), lambda flat: self.config(flat).to_flat()
        )


def run_search(task: RowSearch, say: Say) -> list[dict[str, Any]]:
    """Run the trials that have no outcome yet, and print how each ended.

    A failed trial runs again; an interrupted trial resumes after its last complete round.

    Returns
    -------
    A record of each trial in the order of the candidates.

    Raises
    ------
    UserError
        If another process runs the same search.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directory = task.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory.with_name(f".{directory.name}.lock"), timeout=0)
    try:
        with flower_logs(logging.ERROR), lock:
            return _run_missing(task, say)
    except Timeout:
        raise UserError(f"Another search is running in {directory}: wait for its end.") from None


def best_of(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The complete trial with the lowest value, the first of equal ones; None without any."""
    complete = [record for record in records if record["state"] == "complete"]
    return min(complete, key=lambda record: float(record["value"]), default=None)


def _run_missing(task: RowSearch, say: Say) -> list[dict[str, Any]]:
    prepare_directory(task.directory, IDENTITY, task.identity)
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
            say(f"{task.title}: trial {position + 1} of {len(tried)}, {_text(outcome, task)}")
        else:
            outcome = known.user_attrs[_OUTCOME]
        records.append(outcome)
    return records


def _open(task: RowSearch) -> Study:
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
        # All candidates are enqueued, so the sampler draws nothing.
        sampler=optuna.samplers.RandomSampler(seed=task.seed),
        pruner=pruner,
        load_if_exists=True,
    )


def _latest(study: Study, position: int) -> FrozenTrial | None:
    found = [t for t in study.get_trials(deepcopy=False) if t.user_attrs[_CANDIDATE] == position]
    return found[-1] if found else None


def _begin(study: Study, task: RowSearch, candidate: Candidate, position: int) -> OptunaTrial:
    """Optuna's trial of a candidate: the enqueued one, or the one that was interrupted."""
    import optuna

    known = _latest(study, position)
    assert known is not None, "it is enqueued"
    if known.state == optuna.trial.TrialState.RUNNING:
        return optuna.trial.Trial(study, known._trial_id)
    trial = study.ask()
    assert trial.number == known.number, "the queue has one trial at a time"
    for name in candidate.options:
        trial.suggest_categorical(name, task.search.labels(name))
    return trial


def _run(
    task: RowSearch, candidate: Candidate, position: int, trial: OptunaTrial
) -> dict[str, Any]:
    """Run a trial and record how it ended."""
    import optuna

    directory = task.directory / f"trial-{position:02d}"
    config = task.config({**task.base(), **candidate.changes}, directory)
    seen: Lines = ()

    def report(lines: Lines) -> None:
        nonlocal seen
        seen = [dict(line) for line in lines]
        step, kept = lines[-1]["round"], task.criterion.kept(lines)
        if kept is None or not task.criterion.measures(lines[-1]):
            return
        if step not in _reports(trial):
            trial.report(kept[1], step)
        if step < config.num_rounds and trial.should_prune():
            raise optuna.TrialPruned

    state, reason = "complete", ""
    try:
        seen = run_trial(config, task.num_clients, report)
    except optuna.TrialPruned:
        state = "pruned"
    except DivergedError:
        state = "diverged"
    except Exception as error:  # the other trials can still run
        state, reason = "failed", one_line(error)
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
        "reports": {str(step): value for step, value in _reports(trial).items()},
        "seconds": sum(float(line.get("seconds") or 0) for line in seen),
        "reason": reason,
        "environment": dict(read_environment(directory)),
    }
    _end(trial, outcome)
    if state == "failed":
        shutil.rmtree(directory, ignore_errors=True)
    else:
        remove_models(directory)
    return outcome


def _reports(trial: OptunaTrial) -> Mapping[int, float]:
    """The values that a trial reported, by round."""
    return trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values


def _end(trial: OptunaTrial, outcome: Mapping[str, Any]) -> None:
    """Store the outcome and end Optuna's trial; an ended trial always has its outcome."""
    from optuna.trial import TrialState

    trial.set_user_attr(_OUTCOME, dict(outcome))
    states = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}
    state = states.get(outcome["state"], TrialState.PRUNED)
    value = outcome["value"] if state == TrialState.COMPLETE else None
    trial.study.tell(trial, value, state)


def _text(outcome: Mapping[str, Any], task: RowSearch) -> str:
    """The settings of a trial and how it ended, in one line."""
    tried = label(outcome["settings"]) if outcome["settings"] else "the experiment's settings"
    took = f"{outcome['rounds']} rounds, {outcome['seconds']:.0f} s"
    value = "–" if outcome["value"] is None else task.criterion.text(outcome["value"])
    ended = {
        "complete": f"{value} in round {outcome['round']}",
        "pruned": f"stopped at {value}",
        "diverged": "diverged",
        "failed": f"failed: {outcome['reason']}",
    }
    return f"{tried}: {ended[outcome['state']]} ({took})"
