"""Combining what clients return, apart from what the base strategy does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray


def average_buffers(
    records: Sequence[ArrayRecord],
    weights: NDArray[np.float64],
    names: Iterable[str],
    kept: ArrayRecord,
) -> dict[str, Array]:
    """Weighted mean of the arrays ``names``; integer ones stay as in ``kept``.

    A mean of counters counts nothing, so batch norm's is left alone.
    """
    share = weights / weights.sum()
    result: dict[str, Array] = {}
    for name in names:
        if np.issubdtype(np.dtype(kept[name].dtype), np.integer):
            result[name] = kept[name]
        else:
            layers = np.stack([record[name].numpy() for record in records])
            mean = np.tensordot(share, layers.astype(np.float64), axes=1)
            result[name] = Array(np.asarray(mean, dtype=layers.dtype))
    return result


def merge(weights: ArrayRecord, buffers: Mapping[str, Array], model: ArrayRecord) -> ArrayRecord:
    """Weights and buffers in the order and the dtypes of ``model`` (adaptive bases widen them)."""
    merged = {}
    for name, before in model.items():
        if name in buffers:
            merged[name] = buffers[name]
        else:
            value = np.asarray(weights[name].numpy(), dtype=np.dtype(before.dtype))
            merged[name] = Array(value)
    return ArrayRecord(merged)


def is_finite(record: ArrayRecord) -> bool:
    """Whether no array of ``record`` holds NaN or infinity."""
    return all(np.isfinite(array.numpy()).all() for array in record.values())
