"""Training in two stages: on labels alone, then on pseudo labels too (XCLP, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import PseudoLabelSettings, StageSettings
from fedul_flwr.data.run_files.label_names import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.learning.confidence import CONFIDENT_SHARE
from fedul_flwr.learning.pseudo_label_task import (
    PseudoLabels,
    WeightedPoints,
    pseudo_label_task,
    weighted_points,
)
from fedul_flwr.learning.task import LocalTask, Round

Label = Callable[[], PseudoLabels]
"""Labels a client's unlabeled training points in a round of the second stage."""


def labeling_views(settings: RunConfig, client: int, number: int) -> np.random.Generator | None:
    """Draws the views in which a client labels its points in a round; None for points as they are.

    Parameters
    ----------
    client, number : of the client, and of the round.
    """
    is_release = settings[PseudoLabelSettings].recipe == "release"
    return stream(settings.seed, "labeling-views", number, client) if is_release else None


def staged_points(
    data: PartlyLabeledData, state: ClientState, round: Round, label: Label
) -> WeightedPoints:
    """The points to train on in a round; a simulation's client writes their pseudo labels."""
    stages, examples = data.settings[StageSettings], data.examples
    first_stage = round.number <= stages.labels_only_rounds
    found = PseudoLabels.none(len(data.unlabeled)) if first_stage else label()
    unlabeled = examples.points[data.unlabeled]
    written = {"points": unlabeled, "labels": found.labels, "confidence": found.confidence}
    state.publish(PSEUDO_LABELS, round.number, written)
    return weighted_points(
        examples.inputs,
        examples.points[data.labeled],
        examples.labels[data.labeled],
        unlabeled,
        found,
        stages,
        data.num_classes,
    )


def staged_task(
    data: PartlyLabeledData, state: ClientState, round: Round, label: Label
) -> LocalTask:
    """The task of a method with pseudo labels: its points are those of :func:`staged_points`."""
    points = staged_points(data, state, round, label)
    task = pseudo_label_task(points, data.settings[StageSettings], round.plan)
    if round.number <= data.settings[StageSettings].labels_only_rounds:
        return task
    used = len(points.points) - points.num_labeled
    share = used / max(len(data.unlabeled), 1)
    return replace(task, metrics=lambda: {CONFIDENT_SHARE: share})
