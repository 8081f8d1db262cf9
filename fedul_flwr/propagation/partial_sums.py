"""Distributed propagation: the columns that the server sends, and the clients' partial sums.

XCLP, phase 3. Rows of the sum Z = Σ_i S_i Y_i are ordered by client: the unlabeled points of a
client, then one row of label counts per class. That row is repeated for each client, because each
client only gets its own rows; dividing by the counts afterwards scales labels by class, as
S (Y D) = (S Y) D. Rows of labeled points are neither sent nor returned: from them a client could
compute the labels of others (S is symmetric, so it knows those rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedul_flwr.data.types import Floats, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.solve import ALPHA, propagation_columns, scaled_by_class
from fedul_flwr.secure.rowsums import WrongSumError

Singles = NDArray[np.float32]


@dataclass(frozen=True)
class JointGraph:
    """The points of several clients, ordered by client.

    Attributes
    ----------
    graph : ``(n, n)``, from :func:`~fedul_flwr.propagation.solve.normalized_graph`.
    owners : ``(n,)``, the client of each point.
    labeled : bool ``(n,)``, whether the client has reported a label for it, without its value.
    """

    graph: sparse.csr_array
    owners: Ints
    labeled: NDArray[np.bool_]


@dataclass(frozen=True)
class Influences:
    """Columns that the server sends.

    Attributes
    ----------
    unlabeled : number of unlabeled points of each client, in the order of the rows.
    columns : float32 ``(sum of unlabeled, l_i)`` for each client: influence of its labeled points
        on all unlabeled ones.
    """

    unlabeled: dict[int, int]
    columns: dict[int, Singles]

    def rows(self) -> dict[int, int]:
        """Number of rows of each client in the sum."""
        return {client: size + 1 for client, size in self.unlabeled.items()}


def propagation_weights(
    joint: JointGraph,
    participants: Sequence[int],
    alpha: float = ALPHA,
    *,
    withheld: int | None = None,
) -> Influences:
    """Columns of S = (I - alpha W)^-1 for each participant.

    Parameters
    ----------
    participants : clients that sum their labels, in the order of their points; points of others
        only pass labels on.
    withheld : a client whose labels are excluded; all its points count as unlabeled.

    Examples
    --------
    Client 0 has a labeled point, and client 1 its unlabeled neighbor:

    >>> graph = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> joint = JointGraph(graph, owners=np.array([0, 1]), labeled=np.array([True, False]))
    >>> found = propagation_weights(joint, [0, 1], alpha=0.5)
    >>> found.unlabeled, found.columns[0].astype(float).round(4).tolist()
    ({0: 0, 1: 1}, [[0.6667]])
    """
    labeled = joint.labeled & (joint.owners != withheld if withheld is not None else True)
    is_missing = ~labeled & np.isin(joint.owners, participants)
    used = np.flatnonzero(labeled & np.isin(joint.owners, participants))
    weights = propagation_columns(joint.graph, used, alpha)[is_missing].astype(np.float32)
    return Influences(
        unlabeled={c: int((joint.owners[is_missing] == c).sum()) for c in participants},
        columns={c: weights[:, joint.owners[used] == c] for c in participants},
    )


def own_rows(unlabeled: Sequence[int], position: int) -> slice:
    """Rows of the sum that belong to the participant at ``position``.

    Examples
    --------
    >>> own_rows([2, 3], position=1)
    slice(3, 7, None)
    """
    start = sum(unlabeled[:position]) + position
    return slice(start, start + unlabeled[position] + 1)


def label_part(
    columns: NDArray[np.floating], values: Floats, counts: Floats, unlabeled: Sequence[int]
) -> Floats:
    """One client's summand S_i Y_i, with its label counts in the last row of each client's block.

    Parameters
    ----------
    columns : ``(sum of unlabeled, l_i)``, from the server.
    values : Y_i, ``(l_i, K)``, one-hot.
    counts : ``(K,)``, its labels per class; labels of points outside the graph count too.
    unlabeled : number of unlabeled points of each participant.

    Returns
    -------
    ``(sum of unlabeled + participants, K)``.

    Raises
    ------
    UserError
        If columns have another shape, or are not numbers.

    Examples
    --------
    One label of class 0, and its influence on one point of each of two clients:

    >>> columns, given, counts = np.array([[0.5], [0.25]]), np.array([[1.0, 0.0]]), np.array([1, 0])
    >>> label_part(columns, given, counts, unlabeled=[1, 1]).tolist()
    [[0.5, 0.0], [1.0, 0.0], [0.25, 0.0], [1.0, 0.0]]
    """
    shape = (sum(unlabeled), len(values))
    if columns.shape != shape or columns.dtype.kind not in "fiu":
        raise UserError(
            f"Columns of influence came as {columns.dtype} {columns.shape}; "
            f"they must be numbers {shape}.",
            "message-form",
        )
    ends = np.cumsum(unlabeled)
    scores = np.asarray(columns, dtype=np.float64) @ values
    return np.insert(scores, ends, counts, axis=0)


def check_counts(counts: Floats) -> None:
    """Refuse label counts ``(K,)`` that are not whole numbers from 0: what is random is not.

    Raises
    ------
    WrongSumError
        If they are not.

    Examples
    --------
    >>> check_counts(np.array([1.0, 0.5]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul_flwr.secure.rowsums.WrongSumError: A sum of labels holds counts that are none: ...
    """
    if (counts < 0).any() or (counts != np.rint(counts)).any():
        raise WrongSumError("A sum of labels holds counts that are none: masks did not cancel.")


def scores_of(rows: Floats, *, class_scaling: bool = True) -> Floats:
    """Class scores ``(u_i, K)`` of a client's unlabeled points from its rows ``(u_i + 1, K)``.

    Examples
    --------
    >>> rows = np.array([[4.0, 1.0], [2.0, 1.0]])
    >>> scores_of(rows).tolist()
    [[2.0, 1.0]]
    """
    scores, counts = rows[:-1], rows[-1]
    # Exact sums are not negative; negative values are rounding errors of the fixed point.
    scores = np.maximum(scores, 0)
    return scaled_by_class(scores, counts) if class_scaling else scores
