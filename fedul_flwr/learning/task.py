"""What a client trains on in a round: batches, and a loss. It imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedul_flwr.arrays import Arrays

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedul_flwr.learning.network import Network
    from fedul_flwr.learning.plan import LocalPlan

    Report = Tensor | float | Sequence[float] | Callable[[], Any]
else:
    Report = Any
"""What a client sends: a tensor is read, a function called after training. It returns a number, or
arrays by name."""


class Batch(NamedTuple):
    """The points of a step.

    Attributes
    ----------
    inputs : ``(b, c, h, w)`` images or ``(b, d)`` vectors.
    targets : ``(b,)``, or as the loss takes them.
    num_labeled : number of points with a label or another target of their own, which come first.
    """

    inputs: Tensor
    targets: Tensor
    num_labeled: int = 0

    @property
    def labeled(self) -> Tensor:
        """The points with labels."""
        return self.inputs[: self.num_labeled]

    @property
    def labels(self) -> Tensor:
        """``(num_labeled,)``, their classes."""
        return self.targets[: self.num_labeled]

    @property
    def unlabeled(self) -> Tensor:
        """The points without labels."""
        return self.inputs[self.num_labeled :]

    def to(self, network: Network) -> Batch:
        """The batch on the network's device."""
        inputs = network.to_device(self.inputs)
        return Batch(inputs, self.targets.to(inputs.device), self.num_labeled)


@dataclass(frozen=True)
class Batches:
    """What a client trains on in an epoch.

    Attributes
    ----------
    num_points : number of its points, the weight of its update.
    draw : yields the batches of one epoch; the generator determines order and augmentation.
    """

    num_points: int
    draw: Callable[[np.random.Generator], Iterator[Batch]]

    def __call__(self, rng: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch."""
        return self.draw(rng)

    def of_round(self, plan: LocalPlan, rng: np.random.Generator) -> Iterator[Batch]:
        """The batches of a round: of so many epochs, or the first steps of as many as it takes."""
        epochs = count() if plan.local_steps else range(plan.local_epochs)
        batches = chain.from_iterable(self(rng) for _ in epochs)
        return islice(batches, plan.local_steps or None)


Loss = Callable[["Tensor", "Tensor"], "Tensor"]
"""``(logits (b, K), targets (b,)) -> mean loss``."""

BatchLoss = Callable[["Network", Batch], "Tensor"]
"""``(network, batch) -> mean loss``. Its random numbers come from torch's own generator."""


def on_logits(loss: Loss) -> BatchLoss:
    """``loss`` of the network's outputs and the targets."""

    def of_batch(network: Network, batch: Batch) -> Tensor:
        return loss(network(batch.inputs), batch.targets)

    return of_batch


Records = Mapping[str, Arrays]
"""Arrays by name of their record."""


@dataclass(frozen=True)
class Round:
    """One round of training at a client.

    Attributes
    ----------
    number : of the round, from 1, counted over resumed runs.
    config : values that the server sent with the model; in a task lists of numbers are float64
        tensors.
    plan : optimizer, step size, batches.
    received : arrays that the server sent beside the model.
    """

    number: int
    config: Mapping[str, Any]
    plan: LocalPlan
    received: Records = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where the client trains."""
        return self.plan.device

    def in_tensors(self) -> Round:
        """The round with tensors on its device in place of lists of numbers."""
        import torch

        changed = {
            name: torch.tensor(value, dtype=torch.float64, device=self.device)
            for name, value in self.config.items()
            if isinstance(value, list)
        }
        return replace(self, config={**self.config, **changed})


@dataclass(frozen=True)
class Task:
    """What a client trains on in one round; without points it trains nothing.

    Attributes
    ----------
    batches : the batches of an epoch.
    loss : mean loss of a batch.
    reports : what the client declares in ``reports``, by name; ``loss`` replaces the mean loss.
    stores_momentum : whether SGD's momentum goes on from the client's last round.
    """

    batches: Batches
    loss: BatchLoss
    reports: Mapping[str, Report] = field(default_factory=dict)
    stores_momentum: bool = False

    def read_reports(self) -> dict[str, Any]:
        """The values of the reports, after training."""
        return {name: _value(report) for name, report in self.reports.items()}


def _value(report: Report) -> Any:
    if hasattr(report, "tolist"):
        array: Any = report
        return array.reshape(-1).tolist() if array.ndim else array.tolist()
    if callable(report):
        return report()
    return report if isinstance(report, float | int) else [*report]
