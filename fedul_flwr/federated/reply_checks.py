"""Checks of one client's reply: arrays, metrics, and how far an update goes.

A :class:`~fedul_flwr.errors.BadMessageError` says what is wrong with the form of the reply; the
caller knows whose it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mode

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.aggregation import is_finite
from fedul_flwr.federated.arrays import PlainArray, check_bytes
from fedul_flwr.federated.messages import ARRAYS, DIAGNOSTICS, METRICS, NORMALIZER, WEIGHT

LOSS, STEPS, NUMBER = "loss", "steps", "num-"
"""Metrics: the loss; numbers of steps; what the names of all other counts begin with."""
STARTED, ENDED = "started", "ended"
"""Diagnostics that every reply to a training message has: seconds."""

Form = frozenset[tuple[str, int]]
"""Names of metrics, each with how many numbers it is; -1 for a plain one."""


def check_update(content: RecordDict, expected: Mapping[str, ArrayRecord]) -> None:
    """See that arrays have the names, types and shapes of ``expected``, and finite values.

    Raises
    ------
    BadMessageError
        Naming the first array that has not.
    """
    records = content.array_records
    for record, arrays in expected.items():
        if record not in records:
            raise BadMessageError(f"its update has no {record}")
        of_record = "" if record == ARRAYS else f"{record}/"
        _check_forms(of_record, records[record], arrays)
    if odd := sorted(records.keys() - expected.keys()):
        raise BadMessageError(f"its update has {odd[0]!r}, for which nobody asked")
    if not all(is_finite(record) for record in records.values()):
        raise BadMessageError("its update is not finite")


def _check_forms(prefix: str, found: ArrayRecord, expected: ArrayRecord) -> None:
    for name, array in expected.items():
        if name not in found:
            raise BadMessageError(f"its update has no '{prefix}{name}'")
        what, shape = f"'{prefix}{name}'", tuple(found[name].shape)
        if shape != tuple(array.shape):
            raise BadMessageError(f"its update has shape {shape} for {what}, not {array.shape}")
        if found[name].dtype != array.dtype:
            raise BadMessageError(
                f"its update has type {found[name].dtype} for {what}, not {array.dtype}"
            )
    if odd := sorted(found.keys() - expected.keys()):
        raise BadMessageError(f"its update has '{prefix}{odd[0]}', which the model has not")


def check_all_bytes(content: RecordDict) -> None:
    """See that every array has the bytes it needs (:func:`check_bytes`).

    From then on arrays are looked at without a copy: bases decode each again and again.
    """
    for record in content.array_records.values():
        for name, array in record.items():
            check_bytes(name, array)
            record[name] = PlainArray.seen(array)


def check_metrics(content: RecordDict, *, trained: bool) -> None:
    """See that a reply has metrics, that they are finite, and those that count not negative.

    Parameters
    ----------
    trained : whether the reply is to a training message, and has to say when that was.

    Raises
    ------
    BadMessageError
        Naming the metric.
    """
    known = {METRICS, DIAGNOSTICS} if trained else {METRICS}
    records = content.metric_records
    if odd := sorted(records.keys() - known):
        raise BadMessageError(f"its reply has {odd[0]!r}, for which nobody asked")
    for name in sorted(known - records.keys()):
        raise BadMessageError(f"its reply has no {name}")
    metrics = records[METRICS]
    for record in records.values():
        for name, value in record.items():
            _check_metric(name, value)
    needed = {METRICS: [WEIGHT]} | ({DIAGNOSTICS: [STARTED, ENDED]} if trained else {})
    needed[METRICS] += [] if trained else [LOSS]
    for record_name, names in needed.items():
        for name in names:
            if not isinstance(records[record_name].get(name), (int, float)):
                raise BadMessageError(f"its reply has no {name}")
    if metrics[WEIGHT] != 0 and metrics.get(NORMALIZER) == 0:
        raise BadMessageError(f"its {NORMALIZER} is 0, and it has trained")


def _check_metric(name: str, value: int | float | list[int] | list[float]) -> None:
    found = value if isinstance(value, list) else [value]
    if not all(math.isfinite(number) for number in found):
        raise BadMessageError(f"its {name} is not finite")
    counts = name in (STEPS, NORMALIZER) or name.startswith(NUMBER)
    if counts and any(number < 0 for number in found):
        raise BadMessageError(f"its {name} is below 0")


def form_of(metrics: MetricRecord) -> Form:
    """Names of metrics and how many numbers each is; bases want the same of all clients."""
    return frozenset(
        (name, len(value) if isinstance(value, list) else -1) for name, value in metrics.items()
    )


def common_form(forms: Sequence[Form]) -> Form:
    """The form that most have, of equals the first; ``forms`` must not be empty."""
    return mode(forms)


def update_norm(update: ArrayRecord, start: ArrayRecord) -> float:
    """L2 norm of ``update`` − ``start`` over all floating-point arrays of the two."""
    total = 0.0
    for name, before in start.items():
        if np.issubdtype(np.dtype(before.dtype), np.floating):
            change = update[name].numpy().astype(np.float64) - before.numpy()
            total += float(np.vdot(change, change))
    return math.sqrt(total)
