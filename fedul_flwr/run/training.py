"""Runs that train a model: where they begin, rounds, evaluation and records."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from logging import INFO
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.common import log
from flwr.serverapp import Grid
from torch import nn

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.methods import find_method, is_ours
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.run_files.records import LOSSES, REASONS, Figures, refuse_other_keys
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
from fedul_flwr.data.types import class_counts
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.combine import update_norm
from fedul_flwr.federated.messages import client_label, to_arrays, to_record
from fedul_flwr.federated.payload import OF_ALL, reports_of
from fedul_flwr.federated.policies import LabelStages
from fedul_flwr.federated.resume import go_on, state_of
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.federated.stage import Finished, RunEndsError, ServerStage
from fedul_flwr.federated.stages.columns import scaling_values
from fedul_flwr.federated.strategy import Strategy, validate
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.run import setup
from fedul_flwr.run.callbacks import Callback, Callbacks, EvaluatedRound
from fedul_flwr.run.evaluation import Evaluator, Recorder, measure_models
from fedul_flwr.run.measures import score_priors, score_pseudo_labels
from fedul_flwr.run.resolve_settings import Prepared, prepare
from fedul_flwr.run.server_data import ServerData
from fedul_flwr.run.split_report import show_split, write_reports
from fedul_flwr.run.summary import START_ERRORS, summarize
from fedul_flwr.run.warnings import Warnings

REMEDY = "restore the file from a copy, or begin anew in another output"
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
    run.require_whole(besides=(LAST_MODEL, state_file(done)))
    run.keep_lines(lines)
    if len(lines) < done:
        # The run was interrupted after training and before evaluating this round.
        recorder.record(line, arrays, state, prior=prior)
    return Start(arrays, done, state, prior)


def is_summarized(run: Run, done: int) -> bool:
    """Whether a run of ``done`` rounds has its summary and its pictures."""
    return run.finished and run.plots.exists() and (run.outcome.rounds or 0) >= done


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


class FollowingStages(Callback):
    """Shows evaluated rounds to the stages that look at them."""

    def __init__(self, stages: Iterable[ServerStage]) -> None:
        self._stages = [stage for stage in stages if stage.follows]
        self.waits = bool(self._stages)

    def after_round(self, round: EvaluatedRound) -> None:
        """End the run where a stage does."""
        if why := self.follow([*round.earlier, round.metrics]):
            round.stop(why)

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        """Show all lines so far; why one of them ends the run."""
        reasons = [stage.follow(lines) for stage in self._stages]
        return next((reason for reason in reasons if reason), None)


def train(grid: Grid, settings: RunConfig, run: Run, callbacks: Callbacks) -> None:
    """Train, evaluate, record, and let callbacks look at it."""
    validate(settings)
    data, nodes = setup.open_data(grid, settings, run)
    began = time.time()  # what is done once, such as features of a data set, is no part of a run
    prepared = prepare(settings, data)
    settings, data, model = prepared.settings, prepared.data, prepared.model
    assert model is not None  # of a method that trains
    evaluator = data.evaluator(settings, prepared.learned_from)
    recorder = Recorder(run, settings, evaluator, callbacks, model)
    # First: the last round of a run that was killed may have to be evaluated.
    prepared.scaling.value = setup.earlier_scaling(run, data, settings)
    start = starting_point(run, recorder, model, data.shape.class_names)
    with draws_of(settings.seed, "strategy"):
        strategy = _strategy(prepared, nodes, run, start)
        seed_draws(settings.seed, "server", start.done)  # of the next round
        stages = FollowingStages(strategy.stages)
        ends = stages.follow(run.lines) is not None or start.done >= settings.num_rounds
        if ends and is_summarized(run, start.done):
            raise UserError(
                f"{run.path} has finished after {start.done} rounds; raise num-rounds to train it "
                "further, or begin another run if stop-after has ended it.",
                "run-exists",
            )
        rounds = _AfterRound(strategy, recorder, data, start)
        for line in prepared.said:
            log(INFO, "%s", line)
        setup.describe(run, settings, data, rounds.prior, model, grid)
        of_split, counts = show_split(run, data, settings), _counts(prepared, evaluator)
        warnings = Warnings(
            settings, data.shape.class_names, counts, of_split, lambda: rounds.prior
        )
        callbacks.add(warnings, stages)
        try:
            if not ends:  # else it was interrupted during the last evaluation
                strategy.start(
                    grid,
                    to_record(start.arrays),
                    num_rounds=settings.num_rounds - start.done,
                    timeout=settings.round_timeout,
                    evaluate_fn=rounds,
                )
        except RunEndsError as end:
            rounds.why = str(end)
        finally:
            recorder.close()
    if rounds.why:
        log(INFO, "Ends after %s rounds: %s.", run.last_round, rounds.why)
    of_stages, of_others = _finish(grid, strategy, recorder, data)
    about = {
        **measure_models(recorder, rounds.prior, data.num_clients or 0),
        **score_priors(run.memory, settings.num_rounds, setup.set_truths(data)),
        **of_stages,
        "num_clients": len(strategy.registration.nodes),
        "warnings": warnings.of_run(run),
    }
    summarize(recorder, time.time() - began, about, of_others)
    callbacks.end(run.outcome.entries)


def _strategy(
    prepared: Prepared, nodes: Mapping[int, int | None], run: Run, start: Start
) -> Strategy:
    """The run's strategy, after the round from which it starts."""
    settings, data, model = prepared.settings, prepared.data, prepared.model
    assert model is not None
    strategy_class: type[Strategy] = find_method(settings.method).strategy_class
    of_server, scaling = prepared.of_server, prepared.scaling
    buffers = {name for name, _ in model.named_buffers() if name in model.state_dict()}
    for_clients = setup.client_setup(settings, data, run)
    if scaling.value is not None:
        for_clients.values |= scaling_values(scaling.value)
    strategy = strategy_class(
        settings,
        build_base(settings),
        for_clients,
        nodes=nodes,
        buffers=frozenset(buffers if settings.base != "local" else ()),  # it averages nothing
        trainer=ServerTrainer(settings, data.shape, of_server) if of_server else None,
    )
    go_on(strategy, start.state, start.done)
    strategy.on_summed = lambda: run.save_state(start.done, state_of(strategy))
    setup.write_scaling_once_known(strategy, run, data, scaling)
    if settings.standardize == "owner":  # the server's own points, if it has some
        points = of_server.inputs if of_server is not None else None
        by = points.by if isinstance(points, ScaledInputs) else data.scaling
        if by is not None:
            setup.write_scaling(run, data, by())
    return strategy


def _counts(prepared: Prepared, evaluator: Evaluator | None) -> dict[str, Ints]:
    """Labeled points at the server of each class, by what they are for."""
    parts = {
        "server's labeled points": prepared.of_server,
        "validation points": evaluator and evaluator.validation,
        "test points": evaluator and evaluator.test,
    }
    num_classes = len(prepared.data.shape.class_names)
    return {name: class_counts(of.labels, num_classes) for name, of in parts.items() if of}


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
    start: Start
    why: str = ""
    """Why the run has ended before its last round."""
    _reached: float = 0.0
    _before: ArrayRecord = field(default_factory=ArrayRecord)
    _chance: Mapping[str, float] = field(default_factory=dict)

    @property
    def prior(self) -> Floats | None:
        """``(K,)``, class priors that the model is trained for, if they are known."""
        found_out = self.strategy.test_prior
        return self.start.prior if found_out is None else found_out

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        strategy, recorder, record = self.strategy, self.recorder, self.strategy.record
        callbacks = recorder.callbacks
        if server_round == 0:
            callbacks.begin(recorder.run.lines)
            self._reached, self._before = time.time(), arrays
            return
        seed_draws(recorder.settings.seed, "server", record.round)  # of the next round
        if server_round == 1 or record.joined:
            write_reports(recorder.run, strategy.registry.reports, self.data)
            self._chance = _surrogate_chance(strategy)
        line, state = self._line(arrays), state_of(strategy)
        models, prior = strategy.local_models, strategy.test_prior
        recorder.record(line, to_arrays(arrays), state, models, prior)
        self._before = arrays
        if callbacks.why:
            raise RunEndsError(callbacks.why)

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
            **self._incidents(),
            **record.who(),
            **_update_norm(strategy, self._before, arrays),
        }
        for stage in strategy.stages:
            line |= stage.line() if is_ours(type(stage)) else {}
        refuse_other_keys(line.keys() - figures.keys())
        return line

    def _incidents(self) -> dict[str, Any]:
        """Who failed or was away, and why, by the names of clients in a simulation's data."""
        names = {
            client_label("Client", number): client_label("Client", number, name)
            for number, name in enumerate(self.data.client_names)
        }
        incidents = self.strategy.record.incidents()
        reasons = incidents.pop(REASONS, {})
        lists = {kind: [names.get(one, one) for one in those] for kind, those in incidents.items()}
        why = {names.get(one, one): reason for one, reason in reasons.items()}
        return {**lists, **({REASONS: why} if why else {})}


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
        counts = np.array(report.class_counts, dtype=np.int64)
        return evaluator.error_in_shares(arrays, counts, data.test_at(client, strategy.settings))

    run = Finished(grid, recorder.run, name, number, error)
    of_ours: dict[str, Any] = {}
    of_others: dict[str, Any] = {}
    for stage in strategy.stages:
        entries = of_ours if is_ours(type(stage)) else of_others
        entries |= {**stage.about(), **stage.finish(run)}
    return of_ours, of_others
