"""Means and scales of columns over the points of all clients (``standardize = "federation"``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fedul_flwr.data.columns import Columns
from fedul_flwr.data.content import Content, Value, count, numbers
from fedul_flwr.data.standardize import (
    MEANS,
    SCALES,
    VARIANCES,
    Moments,
    Scaling,
    pooled,
    scaling_by,
)
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import NUM_POINTS


def check_moments(answer: Content, width: int) -> None:
    """Refuse an answer without valid means and variances of ``width`` columns.

    Raises
    ------
    BadMessageError
        With the value.
    """
    for key in (MEANS, VARIANCES):
        if len(numbers(answer, key)) != width:
            raise BadMessageError(f"A message came with {key} of another length than {width}.")
    if (numbers(answer, VARIANCES) < 0).any():
        raise BadMessageError(f"A message came with {VARIANCES} below 0.")


def pool_columns(answers: Mapping[int, Content], columns: Columns | None) -> Scaling:
    """The scaling by all points together, from the clients' answers to phase ``setup``."""
    chosen = [answers[client] for client in sorted(answers) if count(answers[client], NUM_POINTS)]
    parts = [Moments(numbers(answer, MEANS), numbers(answer, VARIANCES)) for answer in chosen]
    return scaling_by(pooled([count(answer, NUM_POINTS) for answer in chosen], parts), columns)


def scaling_values(scaling: Scaling) -> dict[str, Value]:
    """The scaling as values of a message."""
    return {
        MEANS: cast(list[float], scaling.means.tolist()),
        SCALES: cast(list[float], scaling.scales.tolist()),
    }
