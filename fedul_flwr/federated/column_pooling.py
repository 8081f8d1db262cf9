"""Means and scales of columns over the points of all clients (``standardize = "federation"``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import WARNING
from typing import cast

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import Columns, parse_columns
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
from fedul_flwr.federated.column_part import fewest_in_sum
from fedul_flwr.federated.messages import COLUMN_SUM, COLUMNS, NUM_POINTS
from fedul_flwr.federated.nodes import Registration
from fedul_flwr.federated.registry import ClientRef, ClientRegistry
from fedul_flwr.secure.column_sums import MomentServer
from fedul_flwr.secure.similarity import ExcludedClientsError

UNPROTECTED = (
    "standardize-sum = 'plaintext': the server sees mean and variance of each client's columns, "
    "which xclp.secure does not encrypt; 'masked' hides them."
)

LARGEST = float(np.finfo(np.float32).max)
"""Largest number of a point."""


def check_moments(answer: Content, width: int) -> None:
    """Refuse an answer without valid means and variances of ``width`` columns.

    Points are float32 numbers, so no mean is beyond :data:`LARGEST` and no variance beyond its
    square; larger ones would make every standardized number 0.

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
    for key, largest in ((MEANS, LARGEST), (VARIANCES, LARGEST**2)):
        if (np.abs(numbers(answer, key)) > largest).any():
            raise BadMessageError(f"A message came with {key} beyond what points can have.")


def pool_columns(answers: Mapping[int, Content]) -> Moments:
    """Moments of all points together, from the clients' answers to phase ``setup``."""
    chosen = [answers[client] for client in sorted(answers) if count(answers[client], NUM_POINTS)]
    parts = [Moments(numbers(answer, MEANS), numbers(answer, VARIANCES)) for answer in chosen]
    return pooled([count(answer, NUM_POINTS) for answer in chosen], parts)


def scaling_values(scaling: Scaling) -> dict[str, Value]:
    """The scaling as values of a message."""
    return {
        MEANS: cast(list[float], scaling.means.tolist()),
        SCALES: cast(list[float], scaling.scales.tolist()),
    }


class ColumnPooling:
    """Asks the clients of a run for their columns once, and tells them the scaling by all points.

    Parameters
    ----------
    settings : the run's settings; it does nothing unless ``standardize = "federation"``.
    registry, registration : the clients of the run, and how they register.
    setup : what clients get before round 1; those that join later find the scaling there.

    Attributes
    ----------
    on_scaling : called with the scaling once it is known, and the moments that it comes from.
    """

    def __init__(
        self,
        settings: RunConfig,
        registry: ClientRegistry,
        registration: Registration,
        setup: Content,
    ) -> None:
        self._settings = settings
        self._registry, self._registration = registry, registration
        self._setup = setup
        self.on_scaling: Callable[[Scaling, Moments], None] = lambda *_: None

    def check(self, answer: Content) -> None:
        """Refuse a client's answer to phase ``setup`` whose means and variances are not valid."""
        if self._settings.standardize_sum == "plaintext":
            check_moments(answer, self._width)

    def share(self, grid: Grid) -> None:
        """Register the clients, pool their columns, and tell all of them; does nothing if known."""
        if self._settings.standardize != "federation" or MEANS in self._setup.values:
            return
        if not self._registry.clients:
            self._registration.register_all(grid)
        if self._settings.standardize_sum == "masked":
            found = self._masked_sum(grid)
        else:
            codes = self._settings.find(XCLPSettings)
            if codes and codes.secure != "plaintext":
                log(WARNING, UNPROTECTED)
            found = pool_columns(self._registry.answers)
        scaling = scaling_by(found, self._columns)
        values = scaling_values(scaling)
        self._setup.values |= values
        contents = {client: Content(values=values) for client in self._registry.clients}
        self._registry.query(grid, COLUMNS, contents)
        self.on_scaling(scaling, found)

    def _masked_sum(self, grid: Grid) -> Moments:
        """Moments of all points together, of which no client shows its part.

        Raises
        ------
        TooFewClientsError
            If fewer than :func:`fewest_in_sum` clients with points are left.
        """
        points = {c: count(answer, NUM_POINTS) for c, answer in self._registry.answers.items()}
        members = {client.partition_id: client for client in self._registry.clients}
        while True:
            server = MomentServer(points, self._width, fewest_in_sum(self._settings))
            try:
                return self._asked(grid, server, members)
            except ExcludedClientsError as error:  # nobody has sent its sums
                self._registry.fail({members[c]: why for c, why in error.excluded.items()})
                points = {client: points[client] for client in error.left}

    def _asked(self, grid: Grid, server: MomentServer, members: Mapping[int, ClientRef]) -> Moments:
        """One attempt at the sum."""
        while messages := server.ask():
            found = self._registry.query(
                grid,
                COLUMN_SUM,
                {members[client]: Content(dict(arrays)) for client, arrays in messages.items()},
                lambda client, answer: server.check(client.partition_id, answer.arrays),
            )
            server.take({client.partition_id: answer.arrays for client, answer in found.items()})
        return server.moments()

    @property
    def _width(self) -> int:
        return cast(list[int], self._setup.values["model-shape"])[0]

    @property
    def _columns(self) -> Columns | None:
        """Columns of the vectors that models take; features of an extractor have none."""
        described = self._setup.values.get("columns")
        known = described and not self._settings.features
        return parse_columns(str(described)) if known else None
