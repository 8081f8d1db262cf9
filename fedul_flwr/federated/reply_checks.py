"""Checks of one client's reply: arrays, metrics, and the norm of the update.

Each raises a :class:`~fedul_flwr.errors.BadMessageError` that says what is wrong; the caller adds
the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from fedul_flwr.data.content import LARGEST_COUNT
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.aggregation import is_finite
from fedul_flwr.federated.arrays import PlainArray, check_bytes
from fedul_flwr.federated.messages import ARRAYS, DIAGNOSTICS, METRICS, NORMALIZER, WEIGHT

LARGEST = 1e280
"""Largest metric. Weighted sums of them over clients stay finite; diverging losses are below it."""
LOSS, STEPS, NUMBER = "loss", "steps", "num-"
"""Metrics: the loss; numbers of steps; prefix of the names of all other counts."""
STARTED, ENDED = "started", "ended"
"""Diagnostics that every reply to a training message has: seconds."""

Form = frozenset[tuple[str, int]]
"""Names of metrics, each with the length of its list; -1 for a single number."""


def check_update(content: RecordDict, expected: Mapping[str, ArrayRecord]) -> None:
    """Check that arrays have the names, types and shapes of ``expected``, and finite values.

    Raises
    ------
    BadMessageError
        With the name of the first invalid array.
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
    """Check that every array has the bytes it needs (:func:`check_bytes`).

    Also makes decoding them free of copies, as bases decode every array several times.
    """
    for record in content.array_records.values():
        for name, array in record.items():
            check_bytes(name, array)
            record[name] = PlainArray.seen(array)


def check_metrics(content: RecordDict, *, trained: bool) -> None:
    """Check that a reply has metrics and nothing unasked-for, that they are finite, and that counts
    are neither negative nor beyond :data:`~fedul_flwr.data.content.LARGEST_COUNT`.

    Parameters
    ----------
    trained : whether it answers a training message, and so must have the times of training.

    Raises
    ------
    BadMessageError
        With the name of the metric.
    """
    known = {METRICS, DIAGNOSTICS} if trained else {METRICS}
    records = content.metric_records
    unasked = [*(records.keys() - known), *content.config_records]
    if odd := sorted(unasked + ([] if trained else list(content.array_records))):
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
    if not isinstance(metrics[WEIGHT], int):
        raise BadMessageError(f"its {WEIGHT} is no whole number")
    if metrics[WEIGHT] != 0 and metrics.get(NORMALIZER) == 0:
        raise BadMessageError(f"its {NORMALIZER} is 0, and it has trained")


def _check_metric(name: str, value: int | float | list[int] | list[float]) -> None:
    found = value if isinstance(value, list) else [value]
    if any(number != number or abs(number) == math.inf for number in found):
        raise BadMessageError(f"its {name} is not finite")
    if any(abs(number) > LARGEST for number in found):
        raise BadMessageError(f"its {name} is beyond {LARGEST:g}")
    counts = name in (STEPS, NORMALIZER) or name.startswith(NUMBER)
    if counts and any(number < 0 for number in found):
        raise BadMessageError(f"its {name} is below 0")
    if counts and any(number > LARGEST_COUNT for number in found):
        raise BadMessageError(f"its {name} is above {LARGEST_COUNT:,}")


def check_points(metrics: MetricRecord, announced: int) -> None:
    """Check that a reply counts no more points than its client announced before round 1.

    Raises
    ------
    BadMessageError
        If it does. The text has neither number.
    """
    if cast(int, metrics[WEIGHT]) > announced:
        raise BadMessageError(f"its {WEIGHT} is above the num-points that it announced")


def check_normalizer(metrics: MetricRecord, momentum: float, most_steps: float) -> None:
    """Check FedNova's a_i of a client that has trained: it follows from the number of steps.

    Parameters
    ----------
    momentum : rho of the run, below 1.
    most_steps : largest number of steps that the client can have made.

    Raises
    ------
    BadMessageError
        If it does not, or the number of steps is missing, below 1 or above ``most_steps``.
    """
    steps, found = metrics.get(STEPS), metrics.get(NORMALIZER)
    if not isinstance(steps, (int, float)) or not isinstance(found, (int, float)):
        raise BadMessageError(f"its reply has no {STEPS} or no {NORMALIZER}")
    if steps < 1 or steps != int(steps):
        raise BadMessageError(f"its {STEPS} is no whole number above 0, and it has trained")
    if steps > most_steps:
        raise BadMessageError(f"its {STEPS} is more than its points allow")
    if not math.isclose(found, normalizer_of(steps, momentum), rel_tol=1e-6):
        raise BadMessageError(f"its {NORMALIZER} does not follow from its {STEPS}")


def normalizer_of(steps: float, momentum: float) -> float:
    """FedNova's a_i of ``steps`` steps of SGD, (s − rho·(1 − rho^s)/(1 − rho))/(1 − rho).

    It is the sum of the velocities (1 − rho^k)/(1 − rho), k = 1 … s (Wang et al. 2020, section
    4.1), as :func:`fedul_flwr.learning.corrections.local_normalizer` adds them up.
    """
    rest = momentum * (1 - math.pow(momentum, steps)) / (1 - momentum)
    return (steps - rest) / (1 - momentum)


def form_of(metrics: MetricRecord) -> Form:
    """Names and lengths of metrics; bases need the same ones from all clients."""
    return frozenset(
        (name, len(value) if isinstance(value, list) else -1) for name, value in metrics.items()
    )


def common_form(forms: Sequence[Form]) -> Form:
    """The most frequent form, on ties one with fewer lists; ``forms`` must not be empty."""
    votes = Counter(forms)
    return max(forms, key=lambda form: (votes[form], -sum(size >= 0 for _, size in form)))


def check_clipped(update: ArrayRecord, start: ArrayRecord, norm: float) -> None:
    """Check that a client has clipped its update to ``norm``, as ``dp.clipping = "client"`` says.

    Clipping in float32 is not exact: a thousandth of ``norm`` is allowed, and the rounding of
    ``start``'s values, to which the clipped update was added.

    Raises
    ------
    BadMessageError
        With both norms.
    """
    found = update_norm(update, start)
    rounding = math.sqrt(
        sum(
            float(np.finfo(array.dtype).eps * np.linalg.norm(array.numpy().astype(np.float64))) ** 2
            for array in start.values()
            if np.issubdtype(np.dtype(array.dtype), np.floating)
        )
    )
    if found > 1.001 * norm + rounding:
        raise BadMessageError(f"its update has norm {found:.6g}, above dp.norm = {norm:g}")


def update_norm(update: ArrayRecord, start: ArrayRecord) -> float:
    """L2 norm of ``update`` − ``start`` over all floating-point arrays of the two."""
    total = 0.0
    for name, before in start.items():
        if np.issubdtype(np.dtype(before.dtype), np.floating):
            change = update[name].numpy().astype(np.float64) - before.numpy()
            total += float(np.vdot(change, change))
    return math.sqrt(total)
