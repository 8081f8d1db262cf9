"""An update as one vector of 32-bit words, of which the server reads the sum alone.

It has the change of a client's model times its weight, in fixed point, and behind it a few numbers,
the weight and what the client reports among them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import ARRAYS, METRICS, NORMALIZER, WEIGHT
from fedul_flwr.federated.payload import Payload, Sizes, groups_of, in_record, reports_of
from fedul_flwr.federated.stage import stages_of
from fedul_flwr.learning.variates import CONTROL
from fedul_flwr.secure.session import FEWEST
from fedul_flwr.secure.words import (
    IN_STEPS,
    Tail,
    Words,
    dequantize,
    quantize,
    step_numbers,
    step_words,
)

BOUND = 8.0
"""Largest change of a weight of the model in a round without ``max-update-norm``."""
BUFFER_BOUND = 4096.0
"""The same of a batch-norm statistic."""
CONTROL_BOUND = 64.0
"""Largest change of a value of SCAFFOLD's variates, which are gradients."""

SLOTS = 64
"""Fewest numbers that travel with an update: weight, count, weight times a_i (FedNova), metrics."""
FIRST_METRIC = 3
NUMBERS = IN_STEPS.tail(SLOTS)
"""Where they are in a vector: last, in steps of 2^-64."""


@dataclass(frozen=True)
class Layout:
    """Order and range of the values of a vector."""

    shapes: Mapping[tuple[str, str], tuple[int, ...]]
    bounds: Mapping[tuple[str, str], float]
    tail: Tail = NUMBERS

    @classmethod
    def of(
        cls,
        records: Mapping[str, Arrays],
        buffers: Collection[str],
        largest: float,
        tail: Tail = NUMBERS,
    ) -> Layout:
        """The layout of an update of ``records``, the arrays that the server has sent."""
        shapes, bounds = {}, {}
        for record, arrays in records.items():
            for name, array in arrays.items():
                if np.issubdtype(array.dtype, np.floating):
                    shapes[record, name] = array.shape
                    free = BUFFER_BOUND if name in buffers else BOUND
                    bounds[record, name] = CONTROL_BOUND if record == CONTROL else largest or free
        return cls(shapes, bounds, tail)

    @property
    def size(self) -> int:
        """Number of words."""
        values = sum(int(np.prod(shape)) for shape in self.shapes.values())
        return values + self.tail.size

    def words(
        self,
        changes: Mapping[tuple[str, str], Floats],
        numbers: Sequence[float],
        clients: int,
        rng: np.random.Generator,
    ) -> Words:
        """One client's vector."""
        parts = []
        for key in self.shapes:
            values, bound = changes[key].ravel(), self.bounds[key]
            if not (np.abs(values) <= bound).all():
                raise UserError(
                    f"A value of its update is not finite, or beyond {bound:g}, the range of a "
                    "secure sum: lower the learning rate, or clip updates by max-update-norm.",
                    "update-too-large",
                )
            parts.append(quantize(values, bound, clients, rng))
        return np.concatenate([*parts, write_numbers(numbers, self.tail)])

    def read(self, words: Words, clients: int) -> tuple[dict[tuple[str, str], Floats], Floats]:
        """Sums of all clients' changes and numbers from the sum of their vectors."""
        changes, at = {}, 0
        for key, shape in self.shapes.items():
            count = int(np.prod(shape))
            total = dequantize(words[at : at + count], self.bounds[key], clients)
            changes[key] = total.reshape(shape)
            at += count
        return changes, step_numbers(words[at:], self.tail.digits)


def largest_change(settings: RunConfig) -> float:
    """Largest absolute value of an entry of a clipped update; 0 if none is clipped."""
    of_stages = (stage.largest_change(settings) for stage in stages_of(settings))
    return next(filter(None, of_stages), settings.max_update_norm)


class Numbers:
    """Numbers of an update in a vector's tail, in the order of their names.

    Each is times the client's weight, or where it is added up times 1 if the client has trained; of
    what some rounds do not have also the factor itself, which tells the server whether it is there.
    """

    def __init__(self, settings: RunConfig, sizes: Sizes) -> None:
        reports = in_record(reports_of(settings), METRICS)
        self._parts = {
            name: (part, part.sized(sizes))
            for name, part in sorted(reports.items())
            if name != WEIGHT
        }
        needed = [math.prod(shape) + part.optional for part, shape in self._parts.values()]
        self.tail = IN_STEPS.tail(max(SLOTS, FIRST_METRIC + sum(needed)))

    def write(self, weight: float, payload: Payload) -> list[float]:
        """One client's numbers."""
        trained, normalizer = float(weight > 0), float(payload.get(NORMALIZER, 0.0))
        numbers = [weight, trained, weight * normalizer]
        for name, (part, shape) in self._parts.items():
            factor = (trained if part.combine == "sum" else weight) * (name in payload)
            numbers += [factor] * part.optional
            values = np.ravel(payload.get(name, np.zeros(shape)))
            numbers += [factor * float(value) for value in values]
        return numbers

    def read(self, sums: Floats, replies: int) -> dict[str, Any]:
        """Means of the clients' numbers; of those to be added up such shares that the sum of
        ``replies`` equal ones is right."""
        totals, metrics = iter(sums[FIRST_METRIC:]), {}
        for name, (part, shape) in self._parts.items():
            by = float(next(totals)) if part.optional else float(sums[0])
            values = [float(next(totals)) for _ in range(math.prod(shape))]
            if by:
                by = replies if part.combine == "sum" else by
                metrics[name] = [v / by for v in values] if shape else values[0] / by
        if NORMALIZER in metrics:
            metrics[NORMALIZER] = float(sums[2] / sums[0])
        return metrics


def write_numbers(numbers: Sequence[float], tail: Tail = NUMBERS) -> Words:
    """Numbers as words of a vector's tail, whose sums over clients cannot overflow."""
    if len(numbers) > tail.numbers:
        raise UserError(
            f"An update in this secure sum has at most {tail.numbers - FIRST_METRIC} numbers.",
            "message-out-of-range",
        )
    return step_words([*numbers, *[0.0] * (tail.numbers - len(numbers))], tail.digits)


def common_records(settings: RunConfig, records: Mapping[str, Arrays]) -> dict[str, Arrays]:
    """The records that all clients of a round get and change: the model, SCAFFOLD's variate, and
    what the method declares."""
    names = (ARRAYS, *sorted({CONTROL, *groups_of(reports_of(settings))}))
    return {name: records[name] for name in names if name in records}


def fewest_summed(settings: RunConfig) -> int:
    """Fewest clients in a sum: 3, or more with ``xclp.min-labeled-clients``."""
    codes = settings.find(XCLPSettings)
    return max(FEWEST, codes.min_labeled_clients if codes else 0)
