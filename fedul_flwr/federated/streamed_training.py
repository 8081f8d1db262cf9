"""Training on labeled points and the unlabeled points that have arrived (FedMatch, section 6.1)."""

from __future__ import annotations

import numpy as np

from fedul_flwr.config.matching import ScenarioSettings, ViewSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Ints
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.learning.batches import Batches, matching_batches
from fedul_flwr.learning.matching import MatchingObjective
from fedul_flwr.learning.task import LocalTask, Round


def arrived(data: PartlyLabeledData, positions: Ints, round: Round) -> Ints:
    """Those of ``positions`` that arrive in a round's streaming step, in random order."""
    scenario = data.settings[ScenarioSettings]
    steps = scenario.streaming_steps
    step = min((round.number - 1) // scenario.rounds_per_step, steps - 1)
    order = stream(data.settings.seed, "streaming", data.node.partition_id)
    return np.array_split(order.permutation(positions), steps)[step]


def streamed_batches(data: PartlyLabeledData, round: Round) -> tuple[Batches, int]:
    """Batches of labeled points and of the unlabeled ones of this round's step, with target -1.

    Returns
    -------
    The batches, and the number of all these points.
    """
    positions = np.concatenate([data.labeled, arrived(data, data.unlabeled, round)])
    examples = data.examples
    batches = matching_batches(
        examples.inputs,
        examples.points[positions],
        examples.labels[positions],
        round.plan,
        data.settings[ViewSettings].unlabeled_batch_size,
    )
    return batches, len(positions)


def streamed_task(data: PartlyLabeledData, round: Round, objective: MatchingObjective) -> LocalTask:
    """One loss of labeled and unlabeled points, on :func:`streamed_batches`."""
    batches, count = streamed_batches(data, round)
    return LocalTask(count, batches, objective, objective.confidence.metrics)
