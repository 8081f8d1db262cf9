"""Runs that train a model: where they begin, rounds, evaluation and records."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from logging import INFO, WARNING
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted
from torch import nn

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.methods import find_method, is_ours
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.run_files.records import LOSSES, Figures, refuse_other_keys
from fedul_flwr.data.run_files.run import (
    BEST_MODEL,
    HAS_STATE,
    METRICS,
    TRAINED_FOR,
    Run,
    state_file,
)
from fedul_flwr.data.seeds import draws_of, seed_draws
from fedul_flwr.data.standardize import ScaledInputs
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.combine import update_norm
from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.federated.payload import OF_ALL, reports_of
from fedul_flwr.federated.policies import LabelStages
from fedul_flwr.federated.resume import go_on, state_of
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.federated.stage import Finished
from fedul_flwr.federated.stages.columns import scaling_values
from fedul_flwr.federated.strategy import Strategy, validate
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.results.model_file import MODEL_CARD, model_card
from fedul_flwr.run import setup
from fedul_flwr.run.callbacks import Callback, Callbacks
from fedul_flwr.run.evaluation import (
    AddRound,
    Recorder,
    ShareCheck,
    finish_measures,
)
from fedul_flwr.run.measures import (
    score_priors,
    score_pseudo_labels,
    slow_evaluation,
    training_warnings,
)
from fedul_flwr.run.resolve_settings import prepare
from fedul_flwr.run.server_data import ServerData
from fedul_flwr.run.split_report import show_split, write_reports
from fedul_flwr.run.summary import draw_pictures, write_summary

REMEDY = "restore the file from a copy, or begin anew in another output"
START_ERRORS = ("start_test_error", "start_validation_error")
_EVERY_LINE = ("round", "seconds", "seconds_fit", "bytes_up", "bytes_down", "clients", "failures")
"""Keys of a line that numbers belong to in every run."""


@dataclass(frozen=True)
class Start:
    """Where a run begins."""

    arrays: Arrays
    done: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    prior: Floats | None = None
    """Class priors that they are trained for, which clients say again only in a round."""


def starting_point(
    run: Run,
    recorder: Recorder,
    model: nn.Module,
    class_names: Sequence[str],
) -> Start:
    """The last complete round of a run that resumes, else the weights of ``model``."""
    resumes = bool(recorder.settings.resume)
    if not resumes or not (run.path / LAST_MODEL).exists():
        rounds = recorder.run.lines[-1]["round"] if recorder.run.lines else 0
        # Clients' models are evaluated before their round is complete.
        if resumes and rounds > int(recorder.settings.evaluate == "local"):
            raise _damaged(run, LAST_MODEL, f"is missing, and {rounds} rounds are complete")
        run.keep_lines([])
        run.remove_clients()
        setup.start_elsewhere(model, recorder.settings, class_names)
        # What was summed over all clients before round 1: a second sum would tell parts.
        return Start(dump_arrays(model), 0, run.load_state(0) if resumes else {})
    run.require_whole()
    arrays, line = run.load_model(LAST_MODEL)
    has_state = bool(line.pop(HAS_STATE, False))
    trained_for = line.pop(TRAINED_FOR, None)
    prior = None if trained_for is None else np.array(trained_for)
    if not _is_line(line):
        raise _damaged(run, LAST_MODEL, "does not say of which round it is")
    done = int(line["round"])
    arrays = _fitting(run, arrays, dump_arrays(model))
    lines = [stored for stored in recorder.run.lines if stored["round"] <= done]
    _check_lines(run, lines, done)
    state = run.load_state(done)
    if has_state and not state:
        raise _damaged(run, state_file(done), "is missing")
    run.keep_lines(lines)
    if len(lines) < done:
        # The run was interrupted after training and before evaluating this round.
        recorder.record(line, arrays, state, prior=prior)
    return Start(arrays, done, state, prior)


def is_summarized(run: Run, done: int) -> bool:
    """Whether a run of ``done`` rounds has its summary and its pictures."""
    return run.finished and run.plots.exists() and (run.outcome.rounds or 0) >= done


class _StageEndsError(Exception):
    """Ends a run where a stage says so; the text says why."""


def _fitting(run: Run, arrays: Arrays, wanted: Arrays) -> Arrays:
    for name, array in wanted.items():
        stored = arrays.get(name)
        if stored is None or (stored.shape, stored.dtype) != (array.shape, array.dtype):
            how = f"is of another model: array {name!r} must be {array.dtype} {array.shape}"
            raise _damaged(run, LAST_MODEL, how)
    return {name: arrays[name] for name in wanted}


def _check_lines(run: Run, lines: list[dict[str, Any]], done: int) -> None:
    rounds = [line["round"] for line in lines]
    # Of the last round the evaluation may be missing.
    if rounds not in (list(range(1, done + 1)), list(range(1, done))):
        missing = sorted(set(range(1, done)) - set(rounds)) or rounds[:1]
        raise _damaged(run, METRICS, f"does not have round {missing[0]} once")
    for line in lines:
        if not _is_line(line):
            raise _damaged(run, METRICS, f"lacks values of round {line['round']}")


def _is_line(line: Mapping[str, Any]) -> bool:
    numbers = [line.get(key) for key in _EVERY_LINE]
    are_numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return are_numbers and isinstance(line["round"], int) and line["round"] >= 1


def _damaged(run: Run, name: str, how: str) -> UserError:
    return UserError(f"{run.path / name} {how}: {REMEDY}.", "file-damaged")


def train(
    grid: Grid,
    settings: RunConfig,
    run: Run,
    add_round: AddRound,
    callbacks: Iterable[Callback] = (),
) -> None:
    """Train, evaluate, record; ``add_round`` also gets every line of ``metrics.jsonl``."""
    strategy_class: type[Strategy] = find_method(settings.method).strategy_class
    validate(settings)
    data, nodes = setup.open_data(grid, settings, run)
    began = time.time()  # what is done once, such as features of a data set, is no part of a run
    prepared = prepare(settings, data)
    settings, data, model = prepared.settings, prepared.data, prepared.model
    of_server = prepared.of_server
    assert model is not None  # of a method that trains
    evaluator = data.evaluator(settings, prepared.learned_from)
    following = Callbacks(callbacks, settings, run.path, model)
    recorder = Recorder(run, settings, evaluator, add_round, following)
    shares = ShareCheck(recorder, of_server, data.shape.class_names)
    # First: the last round of a run that was killed may have to be evaluated.
    prepared.scaling.value = setup.earlier_scaling(run, data, settings)
    start = starting_point(run, recorder, model, data.shape.class_names)
    done = start.done
    buffers = {name for name, _ in model.named_buffers() if name in model.state_dict()}
    for_clients = setup.client_setup(settings, data, run)
    if prepared.scaling.value is not None:
        for_clients.values |= scaling_values(prepared.scaling.value)
    with draws_of(settings.seed, "strategy"):
        strategy = strategy_class(
            settings,
            build_base(settings),
            for_clients,
            nodes=nodes,
            buffers=frozenset(buffers if settings.base != "local" else ()),  # it averages nothing
            trainer=ServerTrainer(settings, data.shape, of_server) if of_server else None,
        )
        go_on(strategy, start.state, done)
        seed_draws(settings.seed, "server", done)  # of the next round
        ends = _follow(strategy, recorder) is not None or done >= settings.num_rounds
        if ends and is_summarized(run, done):
            raise UserError(
                f"{run.path} has finished after {done} rounds; raise num-rounds to train it "
                "further, or begin another run if stop-after has ended it.",
                "run-exists",
            )
        for line in prepared.said:
            log(INFO, "%s", line)
        strategy.on_summed = lambda: run.save_state(done, state_of(strategy))
        setup.write_scaling_once_known(strategy, run, data, prepared.scaling)
        if settings.standardize == "owner":  # the server's own points, if it has some
            points = of_server.inputs if of_server is not None else None
            by = points.by if isinstance(points, ScaledInputs) else data.scaling
            if by is not None:
                setup.write_scaling(run, data, by())

        def trained_for() -> Floats | None:
            return start.prior if strategy.test_prior is None else strategy.test_prior

        setup.describe(run, settings, data, trained_for(), model, grid)
        of_split = show_split(run, data, settings)
        try:
            if not ends:  # else it was interrupted during the last evaluation
                strategy.start(
                    grid,
                    to_record(start.arrays),
                    num_rounds=settings.num_rounds - done,
                    timeout=settings.round_timeout,
                    evaluate_fn=_AfterRound(strategy, recorder, data, shares, start),
                )
        except PrivacyBudgetExhausted:
            rounds = strategy.record.round - 1
            log(WARNING, "Ends after %s rounds: one more would exceed dp.max-epsilon.", rounds)
        except _StageEndsError as end:
            log(INFO, "Ends after %s rounds: %s.", strategy.record.round, end)
        finally:
            recorder.close()
    of_stages, of_own = _finish(grid, strategy, recorder, data)
    about = {
        **{key: value for key, value in recorder.run.lines[0].items() if key in START_ERRORS},
        **finish_measures(recorder, shares, trained_for(), data.num_clients or 0, of_split),
        **score_priors(run.memory, settings.num_rounds, setup.set_truths(data)),
        **of_stages,
    }
    write_summary(
        run, recorder, len(strategy.registration.nodes), time.time() - began, about, of_own
    )
    following.end(run.outcome.entries)
    run.write_text(MODEL_CARD, model_card(run))
    draw_pictures(run)  # last: their folder says that everything is there


def _errors_of_start(recorder: Recorder, start: Start) -> dict[str, float | None]:
    """Errors of weights that come from elsewhere, before anything is trained.

    In round 1, because means and scales of columns are not known before.
    """
    if recorder.evaluator is None or not recorder.settings.start_from:
        return {}
    errors = recorder.evaluator.errors([start.arrays])
    return {key: errors.get(key.removeprefix("start_")) for key in START_ERRORS}


@dataclass
class _AfterRound:
    """What the server does after every round; Flower calls it once before the first, too."""

    strategy: Strategy
    recorder: Recorder
    data: ServerData
    shares: ShareCheck
    start: Start
    _reached: float = 0.0
    _before: ArrayRecord = field(default_factory=ArrayRecord)
    _chance: Mapping[str, float] = field(default_factory=dict)
    # Of one round a share says little: the run's end says it of all.
    _said: set[str] = field(default_factory=lambda: {"confident_share"})

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        strategy, recorder, record = self.strategy, self.recorder, self.strategy.record
        # With test-prior = "sets" clients tell the priors in round 1.
        self.shares.warning(strategy.test_prior)
        if server_round == 0:
            recorder.callbacks.begin(recorder.run.lines)
            self._reached, self._before = time.time(), arrays
            return
        seed_draws(recorder.settings.seed, "server", record.round)  # of the next round
        if server_round == 1 or record.joined:
            write_reports(recorder.run, strategy.registry.reports, self.data)
            self._chance = _surrogate_chance(strategy)
        line = self._line(arrays)
        self._warn(line)
        models, prior = strategy.local_models, strategy.test_prior
        recorder.record(line, to_arrays(arrays), state_of(strategy), models, prior)
        self._before = arrays
        if why := _follow(strategy, recorder) or recorder.callbacks.why:
            raise _StageEndsError(why)

    def _line(self, arrays: ArrayRecord) -> dict[str, Any]:
        """The round's line of ``metrics.jsonl``, without the errors of its model."""
        strategy, recorder, record = self.strategy, self.recorder, self.strategy.record
        waiting = time.time()
        recorder.wait()  # an evaluation longer than the round counts as part of it
        before, self._reached = self._reached, time.time()
        figures, reported = _reported(strategy)
        line: dict[str, Any] = {
            "round": record.round,
            **(_errors_of_start(recorder, self.start) if record.round == 1 else {}),
            **figures,
            **reported,
            **_about_pseudo_labels(strategy, recorder.run, self.data),
            **self._chance,
            "heldout_loss": record.heldout_loss,
            **({LOSSES: record.heldout_losses} if record.heldout_losses else {}),
            "seconds": self._reached - before,
            "seconds_fit": record.seconds_fit(),
            "seconds_waiting": self._reached - waiting,
            **record.traffic(),
            "clients": record.clients,
            "failures": record.failures,
            **record.incidents(),
            **record.who(),
            **_update_norm(strategy, self._before, arrays),
        }
        for stage in strategy.stages:
            line |= stage.line() if is_ours(type(stage)) else {}
        refuse_other_keys(line.keys() - figures.keys())
        return line

    def _warn(self, line: Mapping[str, Any]) -> None:
        """Log what is wrong with a round, each kind of warning once a run."""
        warnings = training_warnings([line], self.recorder.settings.method)
        if proposed := slow_evaluation([*self.recorder.run.lines, line]):
            warnings["evaluation"] = proposed
        for key in [key for key in warnings if key not in self._said]:
            log(WARNING, "%s", warnings[key])
            self._said.add(key)


def _update_norm(
    strategy: Strategy, before: ArrayRecord, arrays: ArrayRecord
) -> dict[str, float | None]:
    """How far a round has moved the weights; with `base = "local"` only clients' own move."""
    if strategy.settings.base == "local":
        return {}
    weights = {name: array for name, array in before.items() if name not in strategy.model_buffers}
    return {"update_norm": update_norm(arrays, ArrayRecord(weights))}


def _surrogate_chance(strategy: Strategy) -> dict[str, float]:
    """The surrogate loss of a model that knows nothing: mean over clients of ln(number of sets)."""
    if not strategy.can_hold_out:
        return {}
    registry = strategy.registry
    asked = [one.id for one in registry.reports if one.status == "accepted"]
    counts = [registry.answers[client].values.get("num-sets") for client in asked]
    logs = [math.log(count) for count in counts if isinstance(count, int) and count > 0]
    return {"surrogate_chance": fmean(logs)} if logs else {}


def _follow(strategy: Strategy, recorder: Recorder) -> str | None:
    """Show evaluated rounds to the stages that look at them; why one of them ends the run."""
    following = [stage for stage in strategy.stages if stage.follows]
    if following:
        recorder.wait()
    reasons = [stage.follow(recorder.run.lines) for stage in following]
    return next((reason for reason in reasons if reason), None)


def _about_pseudo_labels(strategy: Strategy, run: Run, data: ServerData) -> dict[str, float | None]:
    """Scores of this round's pseudo labels, if a simulation has true labels; else empty."""
    number = strategy.record.round
    policy = strategy.policy
    if not isinstance(policy, LabelStages) or policy.on_labels_only(number):
        return {}
    return score_pseudo_labels(run.memory, number, setup.label_truths(data))


def _reported(strategy: Strategy) -> tuple[dict[str, Any], dict[str, Any]]:
    """The method's own numbers of a round, by its reports, its server and stages of others; and
    what every method reports.

    Raises
    ------
    UserError
        If a name is taken, or two of them have one.
    """
    record, figures = strategy.record, Figures()
    declared = reports_of(strategy.settings).keys() - OF_ALL.keys()
    reported = {name: value for name, value in record.reported.items() if name in declared}
    theirs = [stage.line() for stage in strategy.stages if not is_ours(type(stage))]
    for name, value in chain.from_iterable(
        part.items() for part in (reported, record.metrics, *theirs)
    ):
        figures.add(name, value)
    names = {"loss": "surrogate-loss"} if strategy.can_hold_out else {}
    others = {
        names.get(name, name).replace("-", "_"): value
        for name, value in record.reported.items()
        if name not in declared
    }
    return dict(figures), others


def _finish(
    grid: Grid, strategy: Strategy, recorder: Recorder, data: ServerData
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What stages do after the last round; the summary's entries by ours, and by others."""
    best, evaluator = recorder.best(), recorder.evaluator
    name, number = (BEST_MODEL, best["round"]) if best else (LAST_MODEL, len(recorder.run.lines))

    def error(client: int, arrays: Arrays) -> float | None:
        report = next(one for one in strategy.registry.reports if one.id == client)
        data.complete(report)
        if evaluator is None or report.class_counts is None:
            return None
        return evaluator.error_in_shares(arrays, np.array(report.class_counts, dtype=np.int64))

    run = Finished(grid, recorder.run, name, number, error)
    of_ours: dict[str, Any] = {}
    of_others: dict[str, Any] = {}
    for stage in strategy.stages:
        entries = of_ours if is_ours(type(stage)) else of_others
        entries |= {**stage.about(), **stage.finish(run)}
    return of_ours, of_others
