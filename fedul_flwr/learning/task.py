"""A client's round of local training as values: what it was sent, and what it trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fedul_flwr.data.types import Arrays
from fedul_flwr.learning.batches import Batches
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.plan import LocalPlan

Records = Mapping[str, Arrays]
"""Arrays by name of their record."""


@dataclass(frozen=True)
class Round:
    """One round of training at a client.

    Attributes
    ----------
    number : of the round, from 1, counted over resumed runs.
    config : values that the server sent with the model.
    plan : optimizer, step size, batches.
    received : arrays that the server sent beside the model.
    """

    number: int
    config: Mapping[str, Any]
    plan: LocalPlan
    received: Records = field(default_factory=dict)


def _no_metrics() -> Mapping[str, float]:
    return {}


def _no_records(model: nn.Module) -> Records:
    del model
    return {}


@dataclass(frozen=True)
class LocalTask:
    """What a client trains on in one round.

    Attributes
    ----------
    num_examples : number of its training points, the weight of its update; 0 trains nothing.
    batches : yields the batches of one epoch.
    objective : mean loss of a batch.
    metrics : called after training: metrics beside loss and steps, or in place of them.
    records : called after training with the model: arrays to send beside it.
    stores_momentum : whether SGD's momentum goes on from the client's last round.
    """

    num_examples: int
    batches: Batches
    objective: Objective
    metrics: Callable[[], Mapping[str, float]] = _no_metrics
    records: Callable[[nn.Module], Records] = _no_records
    stores_momentum: bool = False
