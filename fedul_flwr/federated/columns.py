"""Means and scales of columns over all clients' points: the server's part and a client's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import WARNING
from typing import cast

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import Columns, parse_columns
from fedul_flwr.data.content import Content, Value, count, numbers
from fedul_flwr.data.standardize import (
    MEANS,
    SCALES,
    VARIANCES,
    Moments,
    ScaledInputs,
    Scaling,
    moments,
    pooled,
    scaling_by,
)
from fedul_flwr.data.types import Inputs, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.client_data import ClientData
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.messages import COLUMN_SUM, COLUMNS, NUM_POINTS
from fedul_flwr.federated.nodes import ClientRef, ClientRegistry, Registration
from fedul_flwr.secure.column_sums import PART, MomentServer, answer_sum, exact_sums
from fedul_flwr.secure.identities import read_identities
from fedul_flwr.secure.session import FEWEST
from fedul_flwr.secure.similarity import ExcludedClientsError

STORED = "column-sum"
"""Name of the keys between messages, in Flower's state only, until the sum is known."""
ANSWERED = "column-sum-answered"
"""Name of the values that a client stores once it has answered a sum, until the run ends."""


def fewest_in_sum(settings: RunConfig) -> int:
    """Fewest clients in a masked sum of columns: 3, or more with ``xclp.min-labeled-clients``.

    Three, as of two each can take its own part from the sum; t + 2 against t clients who share what
    they know, as in the sum of labels.
    """
    codes = settings.find(XCLPSettings)
    return max(FEWEST, codes.min_labeled_clients if codes else 0)


def plain_moments(settings: RunConfig, data: ClientData) -> dict[str, Value]:
    """Mean and variance of every column as values for the server, if it pools them in plaintext."""
    if settings.standardize_sum != "plaintext":
        return {}
    column_moments = moments(*_own_rows(data))
    return {MEANS: column_moments.means.tolist(), VARIANCES: column_moments.variances.tolist()}


def answer_column_sum(
    settings: RunConfig, node: NodeConfig, state: ClientState, data: ClientData, content: Content
) -> Content:
    """Answer phase ``columns-sum``: a new public key, shares of masks, masked sums of its columns.

    Raises
    ------
    UserError
        If the run has no such sum, too few clients take part for this one or for its owner, or it
        has answered one before: two with other participants would tell a client's part.
    """
    if settings.standardize_sum != "masked":
        raise UserError(
            "The server asked for a sum of columns that this run does not have.",
            "server-out-of-turn",
        )
    if state.values(ANSWERED):
        raise UserError(
            "The server asked for a second sum of columns, which would tell one part.",
            "server-out-of-turn",
        )
    remembered, reply = answer_sum(
        state.ephemeral(STORED),
        content.arrays,
        node.partition_id,
        lambda: exact_sums(*_own_rows(data)),
        max(fewest_in_sum(settings), node.min_labeled_clients),
        state.run,
        read_identities(node.identity, node.partition_id),
    )
    if PART in reply:
        state.set_values(ANSWERED, {ANSWERED: True})
    state.set_ephemeral(STORED, dict(remembered))
    return Content(arrays=dict(reply))


def received_scaling(content: Content, setup: Mapping[str, Value]) -> dict[str, Value]:
    """Means and scales of the columns of all clients together, as a client stores them.

    Parameters
    ----------
    content : of phase ``columns``. Nothing else in it is taken: the settings were checked against
        the owner's limits, and must stay as they were.
    setup : the client's setup, with the number of columns.

    Raises
    ------
    BadMessageError
        If they are not one finite mean and one positive scale for each column.
    """
    shape = cast(list[int], setup["model-shape"])
    scaling = {key: numbers(content, key) for key in (MEANS, SCALES)}
    if any(len(values) != shape[0] for values in scaling.values()) or (scaling[SCALES] <= 0).any():
        raise BadMessageError(
            f"Phase 'columns' came without a mean and a positive scale for {shape[0]} columns.",
            "message-form",
        )
    return {key: cast(list[float], values.tolist()) for key, values in scaling.items()}


def drop_column_sum(state: ClientState) -> None:
    """Delete the client's keys for a sum of columns."""
    state.set_ephemeral(STORED, {})


def _own_rows(data: ClientData) -> tuple[Inputs, Ints]:
    """The client's points as they are, not standardized: an array, and rows of it."""
    inputs, points = data.own_rows
    return (inputs.raw if isinstance(inputs, ScaledInputs) else inputs), points


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
            raise BadMessageError(
                f"A message came with {key} of another length than {width}.", "message-form"
            )
    if (numbers(answer, VARIANCES) < 0).any():
        raise BadMessageError(f"A message came with {VARIANCES} below 0.", "message-out-of-range")
    for key, largest in ((MEANS, LARGEST), (VARIANCES, LARGEST**2)):
        if (np.abs(numbers(answer, key)) > largest).any():
            raise BadMessageError(
                f"A message came with {key} beyond what points can have.", "message-out-of-range"
            )


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
            pooled = self._masked_sum(grid)
        else:
            codes = self._settings.find(XCLPSettings)
            if codes and codes.secure != "plaintext":
                log(WARNING, UNPROTECTED)
            pooled = pool_columns(self._registry.answers)
        scaling = scaling_by(pooled, self._columns)
        values = scaling_values(scaling)
        self._setup.values |= values
        contents = {client: Content(values=values) for client in self._registry.clients}
        self._registry.query(grid, COLUMNS, contents)
        self.on_scaling(scaling, pooled)

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
            content = self._registry.query(
                grid,
                COLUMN_SUM,
                {members[client]: Content(dict(arrays)) for client, arrays in messages.items()},
                lambda client, answer: server.check(client.partition_id, answer.arrays),
            )
            server.take({client.partition_id: answer.arrays for client, answer in content.items()})
        return server.moments()

    @property
    def _width(self) -> int:
        return cast(list[int], self._setup.values["model-shape"])[0]

    @property
    def _columns(self) -> Columns | None:
        """Columns of the vectors that models take; features of an extractor have none."""
        described = self._setup.values.get("columns")
        has_columns = described and not self._settings.features
        return parse_columns(str(described)) if has_columns else None
