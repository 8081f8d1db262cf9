"""Standardize vectors: subtract a mean from every column and divide by a scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError

MEANS, VARIANCES, SCALES = "column-means", "column-variances", "column-scales"
"""Keys of values in messages."""


class Moments(NamedTuple):
    """Mean and variance (divided by n) of every column, float64 ``(d,)`` each."""

    means: Floats
    variances: Floats


class Scaling(NamedTuple):
    """What is subtracted from every column, and what it is divided by, float64 ``(d,)`` each."""

    means: Floats
    scales: Floats


def moments(inputs: Inputs, points: Ints) -> Moments:
    """Mean and variance of every column over rows ``points`` of ``inputs``; 0 without rows."""
    if len(points) == 0:
        return Moments(np.zeros(inputs.shape[1]), np.zeros(inputs.shape[1]))
    rows = np.asarray(inputs[points], dtype=np.float64)
    return Moments(rows.mean(axis=0), rows.var(axis=0))


def pooled(counts: Sequence[int], parts: Sequence[Moments]) -> Moments:
    """Moments of all points together, from those of every client.

    With N = Σ n_i: m = Σ n_i m_i / N and v = Σ n_i (v_i + (m_i − m)²) / N. Sums of squares would
    say the same, but lose all digits of a small variance beside a large mean.

    Examples
    --------
    >>> ward = Moments(np.array([1.0]), np.array([0.0]))
    >>> clinic = Moments(np.array([3.0]), np.array([0.0]))
    >>> found = pooled([10, 10], [ward, clinic])
    >>> found.means.tolist(), found.variances.tolist()
    ([2.0], [1.0])
    """
    weights = np.asarray(counts, dtype=np.float64)
    shares = (weights / weights.sum())[:, np.newaxis]
    means = np.stack([part.means for part in parts])
    variances = np.stack([part.variances for part in parts])
    mean = (shares * means).sum(axis=0)
    return Moments(mean, (shares * (variances + (means - mean) ** 2)).sum(axis=0))


def scaling_by(moments: Moments, columns: Columns | None) -> Scaling:
    """The scaling to mean 0 and variance 1; a constant column gets scale 1.

    Features of categories stay 0 and 1.
    """
    # A constant column of float32 numbers has a variance of rounding errors alone.
    tiny = np.finfo(np.float32).eps * np.abs(moments.means)
    scales = np.sqrt(moments.variances)
    means, scales = moments.means.copy(), np.where(scales > tiny, scales, 1.0)
    if columns is not None:
        of_categories = np.array(
            [column.categories is not None for column in columns.columns for _ in column.features]
        )
        means[of_categories], scales[of_categories] = 0.0, 1.0
    return Scaling(means, scales)


def constant_scaling(columns: Columns | None) -> Scaling:
    """The scaling of the columns file."""
    if columns is None or not columns.has_constants:
        raise UserError(
            "Setting standardize = 'constants' needs setting columns, a columns file with the mean "
            "and scale of every number.",
            "columns-file-needed",
            setting="standardize",
        )
    means, scales = columns.constants()
    return Scaling(np.array(means), np.array(scales))


def scaled(rows: Any, by: Scaling) -> NDArray[np.float32]:
    """``(n, d)`` rows, standardized in float64 and rounded to float32."""
    standardized = (np.asarray(rows, dtype=np.float64) - by.means) / by.scales
    return standardized.astype(np.float32)


class SharedScaling:
    """A scaling that becomes known in the course of a run."""

    def __init__(self) -> None:
        self.value: Scaling | None = None

    def __call__(self) -> Scaling:
        """The scaling."""
        if self.value is None:
            raise UserError(
                "The means and scales of columns are not known before round 1.", "not-sent-yet"
            )
        return self.value


@dataclass(frozen=True)
class ScaledInputs:
    """Vectors that are standardized when rows are taken, like an array of them.

    Attributes
    ----------
    raw : float32 ``(n, d)``, usually memory-mapped.
    by : returns the scaling, which may not be known before the first message about it.
    """

    raw: Inputs
    by: Callable[[], Scaling]

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return scaled(self.raw[rows], self.by())

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, d)``."""
        return self.raw.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return self.raw.dtype
