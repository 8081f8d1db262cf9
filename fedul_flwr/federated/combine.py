"""What becomes of clients' updates: their norms, means, medians, and a base's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats, l2_norm
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    WEIGHT,
    PlainArray,
    TensorArray,
    array_record,
    metric,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.payload import (
    Parts,
)


def update_norm(update: ArrayRecord, start: ArrayRecord) -> float:
    """L2 norm of ``update`` − ``start`` over all floating-point arrays of the two."""
    return l2_norm(
        update[name].numpy().astype(np.float64) - before.numpy()
        for name, before in start.items()
        if np.issubdtype(np.dtype(before.dtype), np.floating)
    )


def clip_update(update: ArrayRecord, start: ArrayRecord, norm: float) -> None:
    """Shorten ``update`` - ``start`` to L2 norm ``norm`` where it is longer, in place.

    Parameters
    ----------
    update, start : floating-point arrays of the same names, types and shapes.
    norm : C, above 0.

    Examples
    --------
    >>> update = array_record({"weight": PlainArray.of(np.array([3.0, 4.0]))})
    >>> start = array_record({"weight": PlainArray.of(np.zeros(2))})
    >>> clip_update(update, start, norm=1.0)
    >>> update["weight"].numpy().round(4).tolist()
    [0.6, 0.8]
    """
    length = update_norm(update, start)
    if length <= norm:
        return
    for name, array in start.items():
        before = array.numpy()
        step = (update[name].numpy().astype(np.float64) - before) * (norm / length)
        update[name] = PlainArray.of((before + step).astype(before.dtype))


def clipped(
    changes: Mapping[tuple[str, str], Floats], norm: float
) -> Mapping[tuple[str, str], Floats]:
    """Changes of values, shortened to L2 norm ``norm`` together where they are longer."""
    length = l2_norm(changes.values())
    factor = min(1.0, norm / length) if length else 1.0
    return {key: value * factor for key, value in changes.items()}


def client_weights(replies: Sequence[Message], kind: str) -> NDArray[np.float64]:
    """Weights of the clients' mean: ``"uniform"``, or ``"examples"`` (points trained on)."""
    if kind == "uniform":
        return np.ones(len(replies))
    return np.array([metric(reply, WEIGHT) for reply in replies])


def weighted_mean(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord:
    """Mean of the arrays of ``records``, computed as Flower's FedAvg does, bit for bit.

    Parameters
    ----------
    records : n records with arrays of the same names and shapes, at least one.
    weights : n weights of any sign, whose sum is not 0.
    """
    total = sum(weights)
    mean: dict[str, NDArray[Any]] = {}
    for record, weight in zip(records, weights, strict=True):
        for name, array in record.items():
            part = array.numpy() * (weight / total)
            mean[name] = mean[name] + part if name in mean else part
    return array_record({name: PlainArray.of(np.asarray(value)) for name, value in mean.items()})


def mean_on_device(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord | None:
    """:func:`weighted_mean` of arrays that are all on a device, computed there; else ``None``."""
    if not all(isinstance(array, TensorArray) for record in records for array in record.values()):
        return None
    import torch

    names, total = list(records[0]), sum(weights)
    mean: list[Any] = []
    for record, weight in zip(records, weights, strict=True):
        tensors = [cast(TensorArray, record[name]).tensor for name in names]
        if mean:
            tensors = [t.to(m.device) for t, m in zip(tensors, mean, strict=True)]
        part = list(torch._foreach_mul(tensors, weight / total))
        if mean:
            torch._foreach_add_(mean, part)
        mean = mean or part
    if any(value.is_cuda for value in mean):  # lanes read it, and get the memory of its parts
        torch.cuda.synchronize()
    return array_record(
        {name: TensorArray.holding(value) for name, value in zip(names, mean, strict=True)}
    )


def average_buffers(
    records: Sequence[ArrayRecord],
    weights: NDArray[np.float64],
    names: Iterable[str],
    previous: ArrayRecord,
    *,
    robust: bool = False,
) -> dict[str, Array]:
    """Weighted mean of the arrays ``names``, or their median; integer ones stay as in ``previous``.

    Integer arrays are counters (batch norm's), for which a mean makes no sense.

    Parameters
    ----------
    records : what each of the n clients returned, at least one.
    weights : ``(n,)``, not negative, of a positive sum.
    previous : the arrays before the round.
    robust : the median of every value, which less than half of the clients cannot move at will.
    """
    share = weights / weights.sum()
    result: dict[str, Array] = {}
    for name in names:
        if np.issubdtype(np.dtype(previous[name].dtype), np.integer):
            result[name] = previous[name]
        else:
            layers = _stacked([record[name] for record in records])
            wide = layers.astype(np.float64)
            middle = np.median(wide, axis=0) if robust else np.tensordot(share, wide, axes=1)
            result[name] = PlainArray.of(np.asarray(middle, dtype=layers.dtype))
    return result


def _stacked(arrays: Sequence[Array]) -> NDArray[Any]:
    """``(n, …)``, the values of n arrays, in one copy if they are on a device."""
    tensors = [array.tensor for array in arrays if isinstance(array, TensorArray)]
    if len(tensors) < len(arrays):
        return np.stack([array.numpy() for array in arrays])
    import torch

    first = tensors[0].device
    stacked: NDArray[Any] = torch.stack([tensor.to(first) for tensor in tensors]).cpu().numpy()
    return stacked


def combined(
    replies: Sequence[Message],
    parts: Parts,
    weights: Floats,
    before: Mapping[str, Any],
    *,
    robust: bool = False,
) -> dict[str, Any]:
    """What clients have reported beside the model, but the means that a base takes of numbers.

    It is taken from ``replies``, whose numbers bases average.

    Parameters
    ----------
    weights : ``(n,)``, of the replies.
    before : arrays by name that were sent, which say the types of their means.
    robust : medians in place of means of arrays.
    """
    reports: dict[str, Any] = {}
    for name, part in parts.items():
        if part.is_group and name != ARRAYS:
            records = [_taken(reply, name) for reply in replies]
            start = to_record(before[name]) if before.get(name) else records[0]
            mean = average_buffers(records, weights, list(start), start, robust=robust)
            reports[name] = to_arrays(array_record(mean))
        elif part.kind == "numbers" and part.combine != "mean":
            record = DIAGNOSTICS if part.combine == "keep" else METRICS
            tables = [reply.content.metric_records[record] for reply in replies]
            values = [np.asarray(t.pop(name), np.float64) for t in tables if name in t]
            if values:
                reports[name] = sum(values) if part.combine == "sum" else np.stack(values)
    return reports


def _taken(reply: Message, name: str) -> ArrayRecord:
    """A record of a reply, which has it no more."""
    content = dict(reply.content)
    record = cast(ArrayRecord, content.pop(name))
    reply.content = RecordDict(content)
    return record


def merge(weights: ArrayRecord, buffers: Mapping[str, Array], model: ArrayRecord) -> ArrayRecord:
    """Weights and buffers in the order and the dtypes of ``model`` (adaptive bases widen them).

    Examples
    --------
    >>> model = array_record({"weight": PlainArray.of(np.zeros(1, dtype=np.float32))})
    >>> wide = array_record({"weight": PlainArray.of(np.array([0.5]))})
    >>> merge(wide, {}, model)["weight"].numpy().dtype.name
    'float32'
    """
    merged = {}
    for name, before in model.items():
        array = buffers[name] if name in buffers else weights[name]
        stays = isinstance(array, TensorArray) and array.dtype == before.dtype
        if name not in buffers and not stays:
            value = np.asarray(array.numpy(), dtype=np.dtype(before.dtype))
            array = PlainArray.of(value)
        merged[name] = array
    return array_record(merged)


def mix(one: ArrayRecord, other: ArrayRecord, weight: float) -> ArrayRecord:
    """(1 − weight)·one + weight·other in the dtypes of ``one``; integers stay those of ``one``."""
    mixed: dict[str, Array] = {}
    for name, array in one.items():
        mixed[name] = array
        value = array.numpy()
        if np.issubdtype(value.dtype, np.floating):
            value = np.asarray((1 - weight) * value + weight * other[name].numpy(), value.dtype)
            mixed[name] = PlainArray.of(value)
    return array_record(mixed)


def refuse_non_finite(
    arrays: ArrayRecord,
    memory: Mapping[str, NDArray[Any]],
    round_number: int,
    last_model: Path,
) -> None:
    """Stop before non-finite weights are evaluated or overwrite the last finite model.

    A model and the state that belongs to it are saved together or not at all.

    Parameters
    ----------
    memory : the other arrays that the next round needs, by name (variates, momenta).
    round_number : the round that ends with ``arrays``.
    last_model : file of the previous round's model, for the error's text; an app of somebody's own
        has none.
    """
    unsound = [] if is_finite(arrays) else ["the combined model"]
    unsound += [
        f"{name!r}, which the next round needs,"
        for name, array in memory.items()
        if not np.isfinite(array).all()
    ]
    if not unsound:
        return
    before = round_number - 1
    file = f", in {last_model}" if last_model.exists() else ""
    last = f"round {before}'s{file}" if before else "the one that the run began with"
    raise UserError(
        f"Round {round_number}: {unsound[0]} is not finite and was not kept; the last good model "
        f"is {last}.",
        "model-not-finite",
    )


def is_finite(record: ArrayRecord) -> bool:
    """Whether no array of ``record`` holds NaN or infinity."""
    on_device = [a.tensor.isfinite().all() for a in record.values() if isinstance(a, TensorArray)]
    others = (array for array in record.values() if not isinstance(array, TensorArray))
    return bool(reduce(and_, on_device, True)) and all(
        np.isfinite(array.numpy()).all() for array in others
    )


OURS = (ARRAYS, METRICS, DIAGNOSTICS)
"""Records of a reply that the wrapper handles; all others are passed on to the base."""


def strip(reply: Message, weight: float, names: Iterable[str]) -> None:
    """Reduce a reply to the base's form: weights in the model's order, metrics, its own records."""
    sent = cast(ArrayRecord, reply.content[ARRAYS])
    content = {name: record for name, record in reply.content.items() if name not in OURS}
    metrics = MetricRecord(dict(cast(MetricRecord, reply.content[METRICS])))
    metrics[WEIGHT] = weight
    arrays = array_record({name: sent[name] for name in names})
    reply.content = RecordDict({ARRAYS: arrays, METRICS: metrics, **content})
