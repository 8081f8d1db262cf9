"""Runs that train a model: where they begin, rounds, evaluation and records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from logging import INFO, WARNING
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted
from torch import nn

from fedul_flwr.config.methods import find_method, is_ours
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.run_files import store
from fedul_flwr.data.run_files.records import LOSSES, Figures, refuse_other_keys
from fedul_flwr.data.run_files.store import BEST_MODEL, PERSONAL, PERSONAL_MODEL
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.data.seeds import remember_draws, seed_draws
from fedul_flwr.data.standardize import ScaledInputs
from fedul_flwr.data.types import Arrays, Content, Floats, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.combine import update_norm
from fedul_flwr.federated.grid import run_phase
from fedul_flwr.federated.messages import PERSONAL as PHASE
from fedul_flwr.federated.messages import (
    to_arrays,
    to_record,
)
from fedul_flwr.federated.payload import OF_ALL, reports_of
from fedul_flwr.federated.policies import LabelStages
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.federated.stages.columns import scaling_values
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.results.model_file import write_model_card
from fedul_flwr.run import setup
from fedul_flwr.run.evaluation import (
    AddRound,
    Evaluator,
    Recorder,
    ShareCheck,
    finish_measures,
)
from fedul_flwr.run.measures import (
    confusion,
    prior_error,
    score_priors,
    score_pseudo_labels,
    slow_evaluation,
    training_warnings,
)
from fedul_flwr.run.resolve_settings import prepare
from fedul_flwr.run.server_data import ServerData
from fedul_flwr.run.split_report import show_split
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
    directory: store.RunDirectory,
    recorder: Recorder,
    model: nn.Module,
    class_names: Sequence[str],
) -> Start:
    """The last complete round of a run that resumes, else the weights of ``model``."""
    resumes = bool(recorder.settings.resume)
    if not resumes or not (directory.path / LAST_MODEL).exists():
        rounds = recorder.lines[-1]["round"] if recorder.lines else 0
        # Clients' models are evaluated before their round is complete.
        if resumes and rounds > int(recorder.settings.evaluate == "local"):
            raise _damaged(directory, LAST_MODEL, f"is missing, and {rounds} rounds are complete")
        directory.replace_metrics([])
        directory.remove_clients()
        recorder.lines = []
        setup.start_elsewhere(model, recorder.settings, class_names)
        # What was summed over all clients before round 1: a second sum would tell parts.
        return Start(dump_arrays(model), 0, directory.load_state(0) if resumes else {})
    arrays, line = directory.load_model(LAST_MODEL)
    has_state = bool(line.pop(store.HAS_STATE, False))
    trained_for = line.pop(store.TRAINED_FOR, None)
    prior = None if trained_for is None else np.array(trained_for)
    if not _is_line(line):
        raise _damaged(directory, LAST_MODEL, "does not say of which round it is")
    done = int(line["round"])
    arrays = _fitting(directory, arrays, dump_arrays(model))
    lines = [stored for stored in recorder.lines if stored["round"] <= done]
    _check_lines(directory, lines, done)
    state = directory.load_state(done)
    if has_state and not state:
        raise _damaged(directory, store.state_file(done), "is missing")
    recorder.lines = lines
    directory.replace_metrics(lines)
    if len(lines) < done:
        # The run was interrupted after training and before evaluating this round.
        recorder.record(line, arrays, state, prior=prior)
    return Start(arrays, done, state, prior)


def is_summarized(directory: store.RunDirectory, done: int) -> bool:
    """Whether a run of ``done`` rounds has its summary and its pictures."""
    if not (directory.path / store.SUMMARY).exists() or not directory.plots.exists():
        return False
    rounds = directory.read_json(store.SUMMARY).get("rounds")
    return isinstance(rounds, int) and rounds >= done


class _NoBetterRoundError(Exception):
    """Ends a run whose last rounds were no better than an earlier one."""


def stops(recorder: Recorder) -> bool:
    """Whether `stop-after` ends a run after its last evaluated round."""
    settings = recorder.settings
    if not settings.stop_after:
        return False
    recorder.wait()
    if (best := recorder.best()) is None:
        return False
    number = int(recorder.lines[-1]["round"])
    waited = number - int(best["round"]) >= settings.stop_after and number >= settings.stop_least
    return waited and settings.is_evaluated(number)


def _fitting(directory: store.RunDirectory, arrays: Arrays, wanted: Arrays) -> Arrays:
    for name, array in wanted.items():
        stored = arrays.get(name)
        if stored is None or (stored.shape, stored.dtype) != (array.shape, array.dtype):
            how = f"is of another model: array {name!r} must be {array.dtype} {array.shape}"
            raise _damaged(directory, LAST_MODEL, how)
    return {name: arrays[name] for name in wanted}


def _check_lines(directory: store.RunDirectory, lines: list[dict[str, Any]], done: int) -> None:
    rounds = [line["round"] for line in lines]
    # Of the last round the evaluation may be missing.
    if rounds not in (list(range(1, done + 1)), list(range(1, done))):
        missing = sorted(set(range(1, done)) - set(rounds)) or rounds[:1]
        raise _damaged(directory, store.METRICS, f"does not have round {missing[0]} once")
    for line in lines:
        if not _is_line(line):
            raise _damaged(directory, store.METRICS, f"lacks values of round {line['round']}")


def _is_line(line: Mapping[str, Any]) -> bool:
    numbers = [line.get(key) for key in _EVERY_LINE]
    are_numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return are_numbers and isinstance(line["round"], int) and line["round"] >= 1


def _damaged(directory: store.RunDirectory, name: str, how: str) -> UserError:
    return UserError(f"{directory.path / name} {how}: {REMEDY}.", "file-damaged")


Watch = Callable[[Sequence[Mapping[str, Any]]], None]
"""Called with all lines of ``metrics.jsonl`` so far: after every round once it is evaluated, before
the next one begins, and when a run resumes. An exception from it ends the run."""


def train(
    grid: Grid,
    settings: RunConfig,
    directory: store.RunDirectory,
    add_round: AddRound,
    watch: Watch | None = None,
) -> None:
    """Train, evaluate, record; ``add_round`` also gets every line of ``metrics.jsonl``."""
    strategy_class: type[Strategy] = find_method(settings.method).strategy_class
    strategy_class.validate(settings)
    data, nodes = setup.open_data(grid, settings, directory)
    began = time.time()  # what is done once, such as features of a data set, is no part of a run
    run = prepare(settings, data)
    settings, data, model, of_server = run.settings, run.data, run.model, run.of_server
    assert model is not None  # of a method that trains
    recorder = Recorder(directory, settings, data.evaluator(settings, run.learned_from), add_round)
    shares = ShareCheck(recorder, of_server, data.shape.class_names)
    # First: the last round of a run that was killed may have to be evaluated.
    run.scaling.value = setup.earlier_scaling(directory, data, settings)
    start = starting_point(directory, recorder, model, data.shape.class_names)
    done = start.done
    ends = done >= settings.num_rounds or stops(recorder)
    if ends and is_summarized(directory, done):
        raise UserError(
            f"{directory.path} has finished after {done} rounds; raise num-rounds to train it "
            "further, or begin another run if stop-after has ended it.",
            "run-exists",
        )
    for line in run.said:
        log(INFO, "%s", line)
    buffers = {name for name, _ in model.named_buffers() if name in model.state_dict()}
    for_clients = setup.client_setup(settings, data, directory)
    if run.scaling.value is not None:
        for_clients.values |= scaling_values(run.scaling.value)
    restore_draws = remember_draws()
    seed_draws(settings.seed, "strategy")
    strategy = strategy_class(
        settings,
        build_base(settings),
        for_clients,
        nodes=nodes,
        buffers=frozenset(buffers if settings.base != "local" else ()),  # it averages nothing
        trainer=ServerTrainer(settings, data.shape, of_server) if of_server else None,
    )
    strategy.resume(start.state, done)
    strategy.on_summed = lambda: directory.save_state(done, strategy.state_dict())
    setup.write_scaling_once_known(strategy, directory, data, run.scaling)
    if settings.standardize == "owner":  # the server's own points, if it has some
        points = of_server.inputs if of_server is not None else None
        by = points.by if isinstance(points, ScaledInputs) else data.scaling
        if by is not None:
            setup.write_scaling(directory, data, by())

    def trained_for() -> Floats | None:
        return start.prior if strategy.test_prior is None else strategy.test_prior

    setup.describe(directory, settings, data, trained_for(), model, grid)
    of_split = show_split(directory, data, settings)
    try:
        if not ends:  # else it was interrupted during the last evaluation
            strategy.start(
                grid,
                to_record(start.arrays),
                num_rounds=settings.num_rounds - done,
                timeout=settings.round_timeout,
                evaluate_fn=_after_round(strategy, recorder, data, shares, watch, start),
            )
    except PrivacyBudgetExhausted:
        rounds = strategy.record.round - 1
        log(WARNING, "Ends after %s rounds: one more would exceed dp.max-epsilon.", rounds)
    except _NoBetterRoundError:
        text = "Ends after %s rounds: stop-after = %s rounds without a better one."
        log(INFO, text, strategy.record.round, settings.stop_after)
    finally:
        recorder.close()
        restore_draws()
    of_stages = [stage.about() for stage in strategy.stages if is_ours(type(stage))]
    theirs = [stage.about() for stage in strategy.stages if not is_ours(type(stage))]
    about = {
        **({"stopped_early": True} if stops(recorder) else {}),
        **{key: value for key, value in recorder.lines[0].items() if key in START_ERRORS},
        **finish_measures(recorder, shares, trained_for(), data.num_clients or 0, of_split),
        **score_priors(directory.clients, settings.num_rounds, setup.set_truths(data)),
        **{key: value for entries in of_stages for key, value in entries.items()},
        **personalize(grid, strategy, recorder, data),
    }
    of_own = {key: value for entries in theirs for key, value in entries.items()}
    write_summary(
        directory, recorder, len(strategy.registration.nodes), time.time() - began, about, of_own
    )
    write_model_card(directory)
    draw_pictures(directory)  # last: their folder says that everything is there


def _errors_of_start(recorder: Recorder, start: Start) -> dict[str, float | None]:
    """Errors of weights that come from elsewhere, before anything is trained.

    In round 1, because means and scales of columns are not known before.
    """
    if recorder.evaluator is None or not recorder.settings.start_from:
        return {}
    errors = recorder.evaluator.errors([start.arrays])
    return {key: errors.get(key.removeprefix("start_")) for key in START_ERRORS}


def _after_round(
    strategy: Strategy,
    recorder: Recorder,
    data: ServerData,
    shares: ShareCheck,
    watch: Watch | None,
    start: Start,
) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    """The function that Flower calls after every round, and once before the first."""

    reached = time.time()
    before_model = ArrayRecord()
    shown: set[str] = set()
    chance: dict[str, float] = {}

    def after_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        nonlocal reached, before_model, chance
        seed_draws(recorder.settings.seed, "server", strategy.record.round)  # of the next round
        if server_round <= 1:  # with test-prior = "sets" clients tell the priors in round 1
            shares.warning(strategy.test_prior)
        if server_round == 0:
            _follow(strategy, recorder)
            _show(recorder, watch)
            reached, before_model = time.time(), arrays
            return None
        record = strategy.record
        if server_round == 1 or record.joined:
            setup.write_federation(recorder.directory, strategy, data)
        waiting = time.time()
        recorder.wait()  # an evaluation longer than the round counts as part of it
        before, reached = reached, time.time()
        if strategy.can_hold_out and (server_round == 1 or record.joined):
            chance = _surrogate_chance(strategy)
        figures = _figures(strategy)
        line: dict[str, Any] = {
            "round": record.round,
            **(_errors_of_start(recorder, start) if record.round == 1 else {}),
            **figures,
            **_loss_and_steps(strategy),
            **_about_pseudo_labels(strategy, recorder.directory, data),
            **chance,
            "heldout_loss": record.heldout_loss,
            **({LOSSES: record.heldout_losses} if record.heldout_losses else {}),
            "seconds": reached - before,
            "seconds_fit": record.seconds_fit(),
            "seconds_waiting": reached - waiting,
            **record.traffic(),
            "clients": record.clients,
            "failures": record.failures,
            **record.incidents(),
            **record.who(),
        }
        if strategy.settings.base != "local":  # the clients' own models change there
            buffers = strategy.model_buffers
            trained = {name: array for name, array in before_model.items() if name not in buffers}
            line["update_norm"] = update_norm(arrays, ArrayRecord(trained))
            before_model = arrays
        for stage in strategy.stages:
            line |= stage.line() if is_ours(type(stage)) else {}
        refuse_other_keys(line.keys() - figures.keys())
        for key, text in training_warnings([line], recorder.settings.method).items():
            if key not in shown and key != "confident_share":
                log(WARNING, "%s", text)
                shown.add(key)
        if "evaluation" not in shown and (proposed := slow_evaluation([*recorder.lines, line])):
            log(WARNING, "%s", proposed)
            shown.add("evaluation")
        recorder.record(
            line,
            to_arrays(arrays),
            strategy.state_dict(),
            strategy.local_models,
            strategy.test_prior,
        )
        _follow(strategy, recorder)
        _show(recorder, watch)
        if stops(recorder):
            raise _NoBetterRoundError
        return None

    return after_round


def _surrogate_chance(strategy: Strategy) -> dict[str, float]:
    """The surrogate loss of a model that knows nothing: mean over clients of ln(number of sets)."""
    registry = strategy.registry
    asked = [one.id for one in registry.reports if one.status == "accepted"]
    counts = [registry.answers[client].values.get("num-sets") for client in asked]
    logs = [math.log(count) for count in counts if isinstance(count, int) and count > 0]
    return {"surrogate_chance": fmean(logs)} if logs else {}


def _show(recorder: Recorder, watch: Watch | None) -> None:
    if watch is not None:
        recorder.wait()
        if recorder.lines:
            watch(recorder.lines)


def _follow(strategy: Strategy, recorder: Recorder) -> None:
    """Show evaluated rounds to the stages that look at them."""
    for stage in strategy.stages:
        if stage.follows:
            recorder.wait()
            stage.follow(recorder.lines)


def _about_pseudo_labels(
    strategy: Strategy, directory: store.RunDirectory, data: ServerData
) -> dict[str, float | None]:
    """Scores of this round's pseudo labels, if a simulation has true labels; else empty."""
    number = strategy.record.round
    policy = strategy.policy
    if not isinstance(policy, LabelStages) or policy.on_labels_only(number):
        return {}
    return score_pseudo_labels(directory.clients, number, setup.label_truths(data))


def _figures(strategy: Strategy) -> dict[str, Any]:
    """The method's own numbers of a round: those of its reports, of its server and of its stage.

    Raises
    ------
    UserError
        If a name is taken, or two of them have one.
    """
    record, figures = strategy.record, Figures()
    declared = reports_of(strategy.settings).keys() - OF_ALL.keys()
    theirs = [stage.line() for stage in strategy.stages if not is_ours(type(stage))]
    reported = {name: value for name, value in record.reported.items() if name in declared}
    for name, value in chain.from_iterable(
        part.items() for part in (reported, record.metrics, *theirs)
    ):
        figures.add(name, value)
    return dict(figures)


def _loss_and_steps(strategy: Strategy) -> dict[str, Any]:
    """What every method reports, and stages of the framework."""
    declared = reports_of(strategy.settings).keys() - OF_ALL.keys()
    names = {"loss": "surrogate-loss"} if strategy.can_hold_out else {}
    return {
        names.get(name, name).replace("-", "_"): value
        for name, value in strategy.record.reported.items()
        if name not in declared
    }


# Personal models at the end of a run: the phase, and what a simulation knows of them.


def personalize(
    grid: Grid, strategy: Strategy, recorder: Recorder, data: ServerData
) -> dict[str, Any]:
    """Let every client make its personal model; returns the summary's entry."""
    settings, directory = recorder.settings, recorder.directory
    if settings.personal == "off":
        return {}
    best = recorder.best()
    name, number = (BEST_MODEL, best["round"]) if best else (LAST_MODEL, len(recorder.lines))
    arrays = directory.load_model(name)[0]
    if not strategy.registry.clients:  # the run goes on after its last round
        strategy.registration.register_all(grid)
        strategy.open(grid)
    clients = strategy.registry.clients
    content = Content(arrays, {"round": number})
    nodes = {client.node_id: content for client in clients}
    phase = run_phase(grid, nodes, PHASE, settings.round_timeout)
    failed = phase.failures
    for client in clients:
        if client.node_id in failed:
            log(WARNING, "%s has no personal model: %s", client, failed[client.node_id])
    about: dict[str, Any] = {
        "kind": settings.personal,
        "round": number,
        "failures": len(failed),
        "bytes_up": phase.bytes_up,
        "bytes_down": phase.bytes_down,
    }
    answered = [client.partition_id for client in clients if client.node_id not in failed]
    files = {client: directory.clients / str(client) / PERSONAL_MODEL for client in answered}
    if not any(file.exists() for file in files.values()):
        log(INFO, "Personal models are where the clients run.")
        return {"personal": about}
    for report in strategy.registry.reports:
        data.complete(report)
    counts = {report.id: report.class_counts for report in strategy.registry.reports}
    rows = [
        _measured(client, file, arrays, counts[client], recorder.evaluator)
        for client, file in files.items()
    ]
    directory.write_json(PERSONAL, {**about, "clients": rows}, indent=None)
    return {"personal": about | _compared(rows)}


def _measured(
    client: int, file: Path, arrays: Arrays, counts: list[int] | None, evaluator: Evaluator | None
) -> dict[str, Any]:
    """What a client found, and errors on test points in its class shares."""
    tuned, facts = load_arrays_of(file)
    row = {"client": client, **facts}
    for key in ("personal", "round"):
        del row[key]
    if evaluator is not None and counts is not None and len(evaluator.test.points):
        shares = np.array(counts, dtype=np.int64)
        row["test_error"] = test_error(evaluator, arrays | tuned, shares)
        row["global_test_error"] = test_error(evaluator, arrays, shares)
    return row


def test_error(evaluator: Evaluator, arrays: Arrays, counts: Ints) -> float | None:
    """Percent wrong on test points with a client's class shares."""
    test = evaluator.test
    logits = evaluator.logits(arrays, test)
    matrix = confusion(test.labels, logits.argmax(axis=1), logits.shape[1])
    present = counts > 0
    if not present.any() or (matrix.sum(axis=1)[present] == 0).any():
        return None
    return prior_error(matrix, counts / counts.sum())


def _compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the clients whose errors are known, and how many gain and lose.

    Errors on test points count where they are known, else those on labels set aside.
    """
    prefix = "test_" if any(row.get("test_error") is not None for row in rows) else ""
    keys = f"{prefix}error", f"global_{prefix}error"
    pairs = [(row[keys[0]], row[keys[1]]) for row in rows if row.get(keys[0]) is not None]
    if not pairs:
        return {"measured_on": "nothing"}
    tuned, shared = np.array(pairs).T
    return {
        "measured_on": "test points" if prefix else "labels set aside",
        "clients": len(pairs),
        "error": float(tuned.mean()),
        "global_error": float(shared.mean()),
        "better": int((tuned < shared).sum()),
        "worse": int((tuned > shared).sum()),
    }
