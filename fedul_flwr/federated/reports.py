"""Numbers that a client sends beside its model, as its method declares them.

From a declaration follow the check at the server, what owners are told, how a secure sum adds the
numbers up, and how they are combined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import CONFIDENT_SHARE, LARGEST_COUNT, Floats
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import NORMALIZER, WEIGHT

LOSS, STEPS = "loss", "steps"

Condition = Callable[[RunConfig], bool]

LARGEST = 1e280
"""Largest number. Weighted sums of them over clients stay finite; diverging losses are below it."""


@dataclass(frozen=True)
class Numbers:
    """One number, or a vector of them.

    Attributes
    ----------
    size : length of a vector, ``"classes"`` for one of length K; ``None`` for one number.
    at_least, at_most : range of each number.
    total : what the numbers of a vector add up to; ``None`` for anything.
    combine : what the server makes of all clients' numbers: their mean with the weights of the
        updates, or their sum.
    says : what it is, for owners of data.
    optional : whether there are rounds without it.
    when : whether it is sent in a run with given settings.
    """

    size: int | Literal["classes"] | None = None
    at_least: float = -LARGEST
    at_most: float = LARGEST
    total: float | None = None
    combine: Literal["mean", "sum"] = "mean"
    says: str = "how training went"
    optional: bool = False
    when: Condition = lambda _: True

    @classmethod
    def count(cls, **options: Any) -> Numbers:
        """A number of things; options are the other attributes."""
        return cls(at_least=0, at_most=LARGEST_COUNT, **options)

    def zeros(self, num_classes: int) -> Floats:
        """Numbers that are all 0, in the declared shape."""
        size = num_classes if self.size == "classes" else self.size
        return np.zeros(() if size is None else size)

    def check(self, name: str, value: Any, num_classes: int, *, masked: bool = False) -> None:
        """Refuse a client's numbers that are not as declared.

        Parameters
        ----------
        masked : whether the numbers are in a secure sum, and ``value`` only has their form.
        """
        numbers, form = np.asarray(value, dtype=float), self.zeros(num_classes)
        if numbers.shape != form.shape:
            wanted = f"{form.size} numbers" if form.ndim else "one number"
            raise BadMessageError(f"its {name} is not {wanted}", "message-form")
        if masked:
            return
        is_within = (self.at_least <= numbers) & (numbers <= self.at_most) & np.isfinite(numbers)
        if not is_within.all() or (
            self.total is not None and not math.isclose(numbers.sum(), self.total, abs_tol=1e-6)
        ):
            total = "" if self.total is None else f", {self.total:g} together"
            raise BadMessageError(
                f"its {name} is not within {self.at_least:g} to {self.at_most:g}{total}",
                "message-out-of-range",
            )


Reports = Mapping[str, Numbers]
"""Declared numbers by name."""


HOW_TRAINING_WENT = "how many points, and how training went"
OF_ALL: Reports = {
    WEIGHT: Numbers.count(says=HOW_TRAINING_WENT),
    LOSS: Numbers(says=HOW_TRAINING_WENT, optional=True),
    STEPS: Numbers.count(says=HOW_TRAINING_WENT, optional=True),
    NORMALIZER: Numbers.count(says=HOW_TRAINING_WENT, optional=True),
}
"""Sent with the update of every method."""

CONFIDENT: Reports = {
    CONFIDENT_SHARE: Numbers(
        at_least=0,
        at_most=1,
        optional=True,
        says="the share of its unlabeled points that it is confident about",
    )
}
"""Sent by a client that trains on its predictions."""


def reports_of(settings: RunConfig) -> Reports:
    """All that the clients of a run report with an update."""
    client = find_method(settings.method).client_class
    declared: Reports = {**OF_ALL, **client.reports}
    return {name: numbers for name, numbers in declared.items() if numbers.when(settings)}


def summed_names(reports: Reports) -> frozenset[str]:
    """Names of the reports that are added up, not averaged."""
    return frozenset(name for name, numbers in reports.items() if numbers.combine == "sum")
