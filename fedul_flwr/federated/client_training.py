"""A client's training in a round: on a task, in stages, with points that arrive."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedul_flwr import learning
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.config.method_settings import (
    ConsistencySettings,
    PseudoLabelSettings,
    StageSettings,
    WeakViewSettings,
)
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.federated.client_data import ClientState, PartlyLabeledData
from fedul_flwr.federated.messages import VALIDATED_ROUND, VALIDATION_LOSS
from fedul_flwr.learning.task import Records, Round, Task
from fedul_flwr.learning.variates import CONTROL, USED_ROUND, confirmed, proposal

if TYPE_CHECKING:
    from torch import nn

MOMENTUM = "momentum"
"""Name under which a client stores the momentum of its optimizer."""


def train_task(
    model: nn.Module,
    task: Task,
    round: Round,
    state: ClientState,
    rng: np.random.Generator,
) -> tuple[Mapping[str, float | list[float]], Records]:
    """Train ``model`` in place; returns metrics, and arrays to send beside it.

    Parameters
    ----------
    state : the client's state, which stores its variate or its momentum.
    rng : generator of all random numbers in this round.
    """
    records: Records = {}
    if CONTROL in round.received:
        used = int(round.config[USED_ROUND])
        variate = confirmed(state.load(CONTROL, round.number), used)
        result, renewed, change = learning.train_with_variates(
            model,
            task,
            round.plan,
            rng,
            variates=(round.received[CONTROL], variate),
            option=str(round.config["scaffold-option"]),
        )
        state.save(CONTROL, round.number, proposal(variate, used, renewed, round.number))
        records = {CONTROL: change}
    elif task.stores_momentum:
        velocity = dict(state.load(MOMENTUM, round.number))
        result = learning.train_local(model, task, round.plan, rng, velocity=velocity)
        state.save(MOMENTUM, round.number, velocity)
    else:
        result = learning.train_local(model, task, round.plan, rng)
    metrics = {
        "loss": result.loss,
        "steps": result.steps,
        "normalizer": learning.local_normalizer(result.steps, round.plan),
    }
    return {**metrics, **task.read_reports()}, {**records, **task.records(model)}


LOSS_HISTORY = "validation-losses"
"""Name under which a client stores the losses that it has counted, and their rounds."""


def client_lr_factor(
    settings: RunConfig,
    state: ClientState,
    setup: Mapping[str, Any],
    server_round: int,
    stage_start: int,
) -> float:
    """Factor of a client's step size, from the losses that it has received so far.

    Counts the loss in this round's message, except in a client's first round: in the authors' code
    a client in its k-th round has seen k − 1 losses. A loss that comes again (`evaluate-every`
    above 1) does not count again; the next new one stands for the client's rounds since.

    Parameters
    ----------
    state : the client's state, which stores the losses for its next round.
    setup : values of the message: the latest validation loss and its round, if there is one.
    server_round : the current round, from 1.
    stage_start : first round whose loss counts; each training stage starts a new count.
    """
    history = state.load(LOSS_HISTORY, server_round)
    rounds = history.get("rounds", np.zeros(0, np.int64))
    losses = history.get("losses", np.zeros(0))
    turns = history.get("turns", np.zeros(0, np.int64))
    count = history.get("count", np.zeros(1, np.int64)) + 1
    if history and VALIDATED_ROUND in setup and setup[VALIDATED_ROUND] not in rounds:
        rounds = np.append(rounds, np.int64(setup[VALIDATED_ROUND]))
        losses = np.append(losses, setup[VALIDATION_LOSS])
        turns = np.append(turns, count)
    arrays = {"rounds": rounds, "losses": losses, "turns": turns, "count": count}
    state.save(LOSS_HISTORY, server_round, arrays)
    stage = rounds >= stage_start
    counted = dict(zip(turns[stage].tolist(), losses[stage].tolist(), strict=True))
    return learning.plateau(counted, settings.learning_rate_patience)


Label = Callable[[], "learning.PseudoLabels"]
"""Labels a client's unlabeled training points in a round of the second stage."""


def labeling_views(settings: RunConfig, client: int, number: int) -> np.random.Generator | None:
    """Draws the views in which a client judges its points in a round; None for points as they are.

    Parameters
    ----------
    client, number : of the client, and of the round.
    """
    staged = settings.find(PseudoLabelSettings)
    is_release = staged is not None and staged.recipe == "release"
    if not (is_release or settings[WeakViewSettings].weak):
        return None
    return stream(settings.seed, "labeling-views", number, client)


def staged_points(
    data: PartlyLabeledData, state: ClientState, round: Round, label: Label
) -> learning.WeightedPoints:
    """The points to train on in a round; a simulation's client writes their pseudo labels."""
    stages, examples = data.settings[StageSettings], data.examples
    first_stage = round.number <= stages.labels_only_rounds
    labels = learning.PseudoLabels.none(len(data.unlabeled)) if first_stage else label()
    unlabeled = examples.points[data.unlabeled]
    written = {"points": unlabeled, "labels": labels.labels, "confidence": labels.confidence}
    state.publish(PSEUDO_LABELS, round.number, written)
    return learning.weighted_points(
        examples.inputs,
        examples.points[data.labeled],
        examples.labels[data.labeled],
        unlabeled,
        labels,
        stages,
    )


def staged_task(data: PartlyLabeledData, state: ClientState, round: Round, label: Label) -> Task:
    """The task of a method with pseudo labels: its points are those of :func:`staged_points`."""
    points = staged_points(data, state, round, label)
    task = learning.weighted_task(points, data.settings[StageSettings], round.plan)
    if round.number <= data.settings[StageSettings].labels_only_rounds:
        return task
    used = len(points.points) - points.num_labeled
    share = used / max(len(data.unlabeled), 1)
    return replace(task, reports={CONFIDENT_SHARE: share})


def smallest_top(
    data: PartlyLabeledData, model: nn.Module, threshold: float, round: Round
) -> float:
    """The smallest top probability of a point that is trained on, of the ``model`` received."""
    if threshold != ADAPTIVE:
        return threshold
    points = data.examples.points[data.arrived(data.unlabeled, round.number)]
    views = labeling_views(data.settings, data.node.partition_id, round.number)
    top = learning.top_probabilities(model, data.examples.inputs, points, round.plan, views)
    return learning.threshold_for(threshold, top)


def weights_and_views(settings: RunConfig) -> dict[str, Any]:
    """Weights and views of labeled and unlabeled points in one loss, as its classes take them."""
    weights = settings[ConsistencySettings]
    return {
        "supervised_weight": weights.supervised_weight,
        "unsupervised_weight": weights.unsupervised_weight,
        "strong_view": learning.strong_view(settings),
        "weak_view": learning.weak_view(settings),
    }


def received_model(model: nn.Module, round: Round) -> nn.Module:
    """A copy of the model that a client received, in evaluation mode, where it trains."""
    plan = round.plan
    return learning.move_model(copy.deepcopy(model), plan.device, plan.precision).eval()


def streamed_task(
    data: PartlyLabeledData,
    round: Round,
    objective: learning.MatchingObjective | learning.ProxyObjective | learning.SageObjective,
) -> Task:
    """One loss of labeled and unlabeled points, on labeled and unlabeled batches."""
    return Task(data.labeled_and_unlabeled(round), objective, objective.confidence.reports)
