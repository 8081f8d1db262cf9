"""A client's part in standardizing by all points: moments in plaintext, or a masked sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content, Value, numbers
from fedul_flwr.data.standardize import MEANS, SCALES, VARIANCES, ScaledInputs, moments
from fedul_flwr.data.types import Inputs, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.client_data import ClientData
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.secure.column_sums import PART, answer_sum, exact_sums
from fedul_flwr.secure.identities import read_identities
from fedul_flwr.secure.session import FEWEST

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
    found = moments(*_own_rows(data))
    return {MEANS: found.means.tolist(), VARIANCES: found.variances.tolist()}


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
        raise UserError("The server asked for a sum of columns that this run does not have.")
    if state.values(ANSWERED):
        raise UserError("The server asked for a second sum of columns, which would tell one part.")
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
    found = {key: numbers(content, key) for key in (MEANS, SCALES)}
    if any(len(values) != shape[0] for values in found.values()) or (found[SCALES] <= 0).any():
        raise BadMessageError(
            f"Phase 'columns' came without a mean and a positive scale for {shape[0]} columns."
        )
    return {key: cast(list[float], values.tolist()) for key, values in found.items()}


def forget_column_sum(state: ClientState) -> None:
    """Delete the client's keys for a sum of columns."""
    state.set_ephemeral(STORED, {})


def _own_rows(data: ClientData) -> tuple[Inputs, Ints]:
    """The client's points as they are, not standardized: an array, and rows of it."""
    inputs, points = data.own_rows
    return (inputs.raw if isinstance(inputs, ScaledInputs) else inputs), points
