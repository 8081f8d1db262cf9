"""Parts of aggregation that the base strategy does not do: buffers, dtypes, checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedul_flwr.errors import UserError
from fedul_flwr.federated.arrays import PlainArray, array_record


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


def average_buffers(
    records: Sequence[ArrayRecord],
    weights: NDArray[np.float64],
    names: Iterable[str],
    kept: ArrayRecord,
    *,
    robust: bool = False,
) -> dict[str, Array]:
    """Weighted mean of the arrays ``names``, or their median; integer ones stay as in ``kept``.

    Integer arrays are counters (batch norm's), for which a mean makes no sense.

    Parameters
    ----------
    records : what each of the n clients returned, at least one.
    weights : ``(n,)``, not negative, of a positive sum.
    kept : the arrays before the round.
    robust : the median of every value, which less than half of the clients cannot move at will.
    """
    share = weights / weights.sum()
    result: dict[str, Array] = {}
    for name in names:
        if np.issubdtype(np.dtype(kept[name].dtype), np.integer):
            result[name] = kept[name]
        else:
            layers = np.stack([record[name].numpy() for record in records])
            wide = layers.astype(np.float64)
            middle = np.median(wide, axis=0) if robust else np.tensordot(share, wide, axes=1)
            result[name] = PlainArray.of(np.asarray(middle, dtype=layers.dtype))
    return result


def merge(weights: ArrayRecord, buffers: Mapping[str, Array], model: ArrayRecord) -> ArrayRecord:
    """Weights and buffers in the order and the dtypes of ``model`` (adaptive bases widen them)."""
    merged = {}
    for name, before in model.items():
        if name in buffers:
            merged[name] = buffers[name]
        else:
            value = np.asarray(weights[name].numpy(), dtype=np.dtype(before.dtype))
            merged[name] = PlainArray.of(value)
    return array_record(merged)


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
    last_model : file of the previous round's model, for the error's text.

    Raises
    ------
    UserError
        If a value is NaN or infinite; it says where the last good model is.
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
    last = f"round {before}'s, in {last_model}" if before else "the one that the run began with"
    raise UserError(
        f"Round {round_number}: {unsound[0]} is not finite and was not kept; the last good model "
        f"is {last}."
    )


def is_finite(record: ArrayRecord) -> bool:
    """Whether no array of ``record`` holds NaN or infinity."""
    return all(np.isfinite(array.numpy()).all() for array in record.values())
