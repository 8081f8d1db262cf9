"""Train a client's model on a task, with SCAFFOLD's correction where the server sends a variate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn

from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.learning.corrections import local_normalizer
from fedul_flwr.learning.local import LocalResult, train_local
from fedul_flwr.learning.scaffold import train_with_variates
from fedul_flwr.learning.task import LocalTask, Records, Round
from fedul_flwr.learning.variates import CONTROL, USED_ROUND, confirmed, proposal


def train_task(
    model: nn.Module,
    task: LocalTask,
    round: Round,
    state: ClientState,
    rng: np.random.Generator,
) -> tuple[Mapping[str, float], Records]:
    """Train ``model`` in place; returns metrics, and arrays to send beside it.

    Parameters
    ----------
    state : the client's state, which stores its variate.
    rng : generator of all random numbers in this round.
    """
    if CONTROL in round.received:
        result, records = _corrected(model, task, round, state, rng)
    else:
        result = train_local(model, task.batches, task.objective, round.plan, rng)
        records = {}
    metrics = {
        "loss": result.loss,
        "steps": result.steps,
        "normalizer": local_normalizer(result.steps, round.plan),
    }
    return {**metrics, **task.metrics()}, {**records, **task.records(model)}


def _corrected(
    model: nn.Module,
    task: LocalTask,
    round: Round,
    state: ClientState,
    rng: np.random.Generator,
) -> tuple[LocalResult, Records]:
    used = int(round.config[USED_ROUND])
    own = confirmed(state.load(CONTROL, round.number), used)
    result, renewed, change = train_with_variates(
        model,
        task.batches,
        task.objective,
        round.plan,
        rng,
        server=round.received[CONTROL],
        own=own,
        option=str(round.config["scaffold-option"]),
    )
    state.save(CONTROL, round.number, proposal(own, used, renewed, round.number))
    return result, {CONTROL: change}
