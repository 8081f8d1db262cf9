"""The data graph for label propagation (XCLP, phase 2)."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.neighbours import (
    Distances,
    neighbours_by_code,
    neighbours_by_distance,
)

NUM_NEIGHBOURS = 10
"""k of the paper, appendix A.2."""

POWER = 3.0
"""Exponent of similarities in edge weights in the authors' code; 1 in the text."""


def normalised_graph(neighbours: sparse.csr_array, power: float = POWER) -> sparse.csr_array:
    """D^-1/2 W D^-1/2 with W = A + A^T and D = diag(W 1) (phase 2).

    Mutual neighbors have twice the weight of one-sided ones. Rows of isolated points are empty.
    Eigenvalues lie in [-1, 1].

    Parameters
    ----------
    neighbours : A hat, ``(n, n)``, similarities of every point to its neighbors, not negative;
        its diagonal is left out.
    power : exponent of the similarities, positive; 3 in the authors' code, 1 in the paper's text.

    Returns
    -------
    float64 ``(n, n)``, exactly symmetric, zero diagonal.

    Raises
    ------
    UserError
        For a power that is not positive, or similarities that are negative or not finite.
    """
    if not 0 < power < np.inf:
        raise UserError(f"the power of edge weights is {power}; it must be positive")
    chosen = sparse.coo_array(neighbours, dtype=np.float64)
    if not np.isfinite(chosen.data).all() or (chosen.data < 0).any():
        raise UserError("similarities of neighbours must be finite and not negative")
    edge = (chosen.row != chosen.col) & (chosen.data > 0)
    rows, columns, weights = chosen.row[edge], chosen.col[edge], chosen.data[edge] ** power
    one_way = sparse.csr_array((weights, (rows, columns)), shape=chosen.shape)
    graph = sparse.coo_array(one_way + one_way.T)
    # A product of roots: the root of the product could underflow.
    root = np.sqrt(np.bincount(graph.row, graph.data, minlength=graph.shape[0]))
    normalised = graph.data / (root[graph.row] * root[graph.col])
    return sparse.csr_array((normalised, (graph.row, graph.col)), shape=graph.shape)


def graph_from_codes(
    codes: Bytes, k: int = NUM_NEIGHBOURS, power: float = POWER
) -> sparse.csr_array:
    """Normalized graph ``(n, n)`` of points from their codes.

    See :func:`~fedul_flwr.propagation.neighbours.neighbours_by_code` and
    :func:`normalised_graph`.
    """
    return normalised_graph(neighbours_by_code(codes, k), power)


def graph_from_distances(
    distances: Distances, num_bits: int, k: int = NUM_NEIGHBOURS, power: float = POWER
) -> sparse.csr_array:
    """Normalized graph ``(n, n)`` of points from their Hamming distances H only.

    See :func:`~fedul_flwr.propagation.neighbours.neighbours_by_distance` and
    :func:`normalised_graph`.
    """
    return normalised_graph(neighbours_by_distance(distances, num_bits, k), power)
