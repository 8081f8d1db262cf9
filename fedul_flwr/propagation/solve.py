"""The data graph, and the influence of labels along it: columns of (I - alpha W)^-1 (XCLP).

XCLP, phases 2 and 3 and appendix C.1. W is sparse and symmetric with eigenvalues in [-1, 1], so
I - alpha W is positive definite, and conjugate gradients find one column after about
sqrt(1 / (1 - alpha)) products with W per digit. Labels have no effect on other connected components
of the graph: in a component without labels the result is exactly zero.

Across clients, rows of the sum Z = Σ_i S_i Y_i are ordered by client: the unlabeled points of a
client, then one row of label counts per class. That row is repeated for each client, because each
client only gets its own rows; dividing by the counts afterwards scales labels by class, as
S (Y D) = (S Y) D. Rows of labeled points are neither sent nor returned: from them a client could
compute the labels of others (S is symmetric, so it knows those rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fedul_flwr.arrays import Floats, Ints, blocks
from fedul_flwr.data.class_labels import checked_labels, checked_scores, shares_of_rows
from fedul_flwr.data.class_priors import estimate_prior, uniform_prior
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.types import UNLABELED
from fedul_flwr.errors import UserError
from fedul_flwr.secure.rowsums import WrongSumError

NUM_NEIGHBORS = 10
"""k of the paper, appendix A.2."""

POWER = 3.0
"""Exponent of similarities in edge weights in the authors' code; 1 in the text."""


def normalized_graph(neighbors: sparse.csr_array, power: float = POWER) -> sparse.csr_array:
    """D^-1/2 W D^-1/2 with W = A + A^T and D = diag(W 1) (phase 2).

    Mutual neighbors have twice the weight of one-sided ones. Rows of isolated points are empty.
    Eigenvalues lie in [-1, 1].

    Parameters
    ----------
    neighbors : A hat, ``(n, n)``, similarities of every point to its neighbors, not negative;
        its diagonal is left out.
    power : exponent of the similarities, positive; 3 in the authors' code, 1 in the paper's text.

    Returns
    -------
    float64 ``(n, n)``, exactly symmetric, zero diagonal.

    Examples
    --------
    >>> chain = sparse.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> normalized_graph(chain).toarray().round(4).tolist()
    [[0.0, 0.7071, 0.0], [0.7071, 0.0, 0.7071], [0.0, 0.7071, 0.0]]
    """
    chosen = sparse.coo_array(neighbors, dtype=np.float64)
    edge = (chosen.row != chosen.col) & (chosen.data > 0)
    rows, columns, weights = chosen.row[edge], chosen.col[edge], chosen.data[edge] ** power
    one_way = sparse.csr_array((weights, (rows, columns)), shape=chosen.shape)
    graph = sparse.coo_array(one_way + one_way.T)
    # A product of roots: the root of the product could underflow.
    root = np.sqrt(np.bincount(graph.row, graph.data, minlength=graph.shape[0]))
    normalized = graph.data / (root[graph.row] * root[graph.col])
    return sparse.csr_array((normalized, (graph.row, graph.col)), shape=graph.shape)


def nearest_names(
    features: NDArray[np.floating], names: NDArray[np.floating], k: int
) -> tuple[Ints, Floats]:
    """The k names, of ``(K, d)``, nearest to each of ``(n, d)``, and their cosines, at least 0."""
    units, of_names = (
        rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
        for rows in (np.asarray(features, np.float64), np.asarray(names, np.float64))
    )
    cosines = np.clip(units @ of_names.T, 0, 1)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return nearest, np.take_along_axis(cosines, nearest, axis=1)


def with_names(
    neighbors: sparse.csr_array, nearest: Ints, weights: Floats, num_names: int
) -> sparse.csr_array:
    """``(n + K, n + K)``: ``neighbors`` of n points, and an edge of each to its nearest names."""
    points, count = sparse.coo_array(neighbors), neighbors.shape[0]
    rows = np.concatenate([points.row, np.repeat(np.arange(count), nearest.shape[1])])
    columns = np.concatenate([points.col, count + nearest.ravel()])
    data = np.concatenate([points.data, weights.ravel()])
    size = (count + num_names,) * 2
    return sparse.csr_array((data, (rows, columns)), shape=size)


SHARPNESS = 6.0
SPREAD = (0.4, 0.8)
"""Limits for exp(entropy) of an estimated prior, its effective number of classes, as a fraction of
K: below the first it is used as it is, above the second a uniform prior is used. Chosen on MNIST,
like the sharpness."""


def one_hot(labels: ArrayLike, num_classes: int) -> Floats:
    """Y: a one in the column of each given label, zero rows for unlabeled points.

    Parameters
    ----------
    labels : integers ``(n,)``, classes ``0..K-1`` or -1 for unlabeled.
    num_classes : K, at least 1.

    Returns
    -------
    float64 ``(n, K)``.
    """
    checked = checked_classes(labels, num_classes)
    labeled = checked != UNLABELED
    rows = np.zeros((len(checked), num_classes))
    rows[labeled, checked[labeled]] = 1
    return rows


def reweigh_by_prior(scores: ArrayLike, *, sharpness: float = SHARPNESS) -> Floats:
    """Re-weigh scores of one client's points by class priors estimated from them.

    Not in the paper, and local: nothing leaves the client. Propagated scores are too uniform to be
    posteriors; their power z^sharpness, divided by its sum, is used as one. From it expectation
    maximization estimates class priors pi
    (:func:`~fedul_flwr.data.class_priors.estimate_prior`, one pseudo point per class). An
    estimate spread over :data:`SPREAD` [1] of the classes or more is treated as noise around
    uniform priors and dropped; one spread over :data:`SPREAD` [0] or less is used as it is; between
    them it is mixed with uniform priors. The resulting labels are those of z^sharpness · pi.

    Parameters
    ----------
    scores : Z, ``(n, K)``, rows of one client's unlabeled points, finite, not negative.
    sharpness : above 0; smaller values trust the priors more.

    Returns
    -------
    ``(n, K)``, z · (K pi)^(1 / sharpness): the unchanged scores if pi is uniform. Zero rows do not
    change and are not used in the estimate.

    Examples
    --------
    An undecided point goes with the nine that are of class 0:

    >>> scores = [[3.0, 1.0]] * 9 + [[1.0, 1.01]]
    >>> int(reweigh_by_prior(scores)[-1].argmax())
    0
    """
    checked = checked_scores(scores)
    num_classes = checked.shape[1]
    reached = checked.any(axis=1)
    if num_classes == 1 or not reached.any():
        return checked
    posterior = shares_of_rows(shares_of_rows(checked[reached]) ** sharpness)
    uniform = uniform_prior(num_classes)
    prior = estimate_prior(posterior, uniform)
    spread = np.exp(-(prior * np.log(prior)).sum()) / num_classes
    low, high = SPREAD
    doubt = np.clip((spread - low) / (high - low), 0, 1)
    prior = prior + doubt * (uniform - prior)
    return np.asarray(checked * (num_classes * prior) ** (1 / sharpness))


def checked_classes(labels: ArrayLike, num_classes: int) -> Ints:
    """As :func:`checked_labels`, and also refuses labels above K - 1."""
    checked = checked_labels(labels)
    if checked.max(initial=UNLABELED) >= num_classes:
        raise UserError(
            f"label {checked.max()} is none of the classes 0 to {num_classes - 1}", "labels-wrong"
        )
    return checked


Singles = NDArray[np.float32]
_Real = TypeVar("_Real", np.float32, np.float64)

ALPHA = 0.99
"""alpha of the paper, appendix A.2."""

TOLERANCE = 1e-8
"""Relative residual, in the Euclidean norm, at which a column is finished. Its error is at most
1 / (1 - alpha) times that: 1e-6 for a label of weight 1."""

_INNER_TOLERANCE = 5e-5
"""Tolerance that float32 reaches easily; two or three such solutions reach :data:`TOLERANCE`."""

_MOST_STEPS, _MOST_ROUNDS = 1000, 20
"""Limits of iterations, more than alpha = 0.9999 needs; without them an unreachable tolerance would
never end."""

_COLUMNS_AT_A_TIME = 32
"""Small enough for a core's cache; several cores work in parallel. It is fixed so that results do
not depend on the number of cores."""


def propagate(
    graph: sparse.csr_array,
    labels: ArrayLike,
    alpha: float = ALPHA,
    *,
    class_scaling: bool = True,
    tolerance: float = TOLERANCE,
) -> Floats:
    """Class scores Z = (I - alpha W)^-1 Y of every point (phase 3, eq. 2 up to a factor).

    Parameters
    ----------
    graph : W, ``(n, n)``, symmetric, from :func:`~fedul_flwr.propagation.solve.normalized_graph`.
    labels : Y, ``(n, K)``, one-hot rows of labeled points, zero rows of others.
    alpha : in [0, 1), how far labels spread.
    class_scaling : first divide each column by the number of its labels, as in the authors' code,
        so that classes with many labels have no advantage; the text does not.
    tolerance : see :data:`TOLERANCE`.

    Returns
    -------
    ``(n, K)``; not negative if Y is not.

    Raises
    ------
    UserError
        If the tolerance cannot be reached with this alpha in float64.

    Examples
    --------
    Two neighbors, of which the first has a label:

    >>> graph = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> propagate(graph, one_hot([0, -1], num_classes=1), alpha=0.5).round(4).tolist()
    [[1.3333], [0.6667]]
    """
    scores = np.array(labels, dtype=np.float64)
    if class_scaling:
        scores = scaled_by_class(scores, scores.sum(axis=0))
    return _solve(graph, scores, alpha, tolerance)


def propagation_columns(
    graph: sparse.csr_array, labeled: ArrayLike, alpha: float = ALPHA
) -> Floats:
    """Influence of labels of some points on all points: columns of S = (I - alpha W)^-1 (phase 3).

    Client i gets it as S_i: ``propagation_columns(graph, labeled) @ Y[labeled]`` is its part of the
    scores, and the parts of all clients sum to ``propagate(…, class_scaling=False)``. Counts of
    labels per class can be summed as well, for :func:`scaled_by_class`.

    Parameters
    ----------
    graph, alpha : as for :func:`propagate`.
    labeled : integers ``(l,)``, points whose columns are wanted.

    Returns
    -------
    ``(n, l)``, not negative.
    """
    points = np.asarray(labeled, dtype=np.int64)
    unit = np.zeros((graph.shape[0], len(points)))
    unit[points, np.arange(len(points))] = 1
    return _solve(graph, unit, alpha, TOLERANCE)


def scaled_by_class(columns: Floats, counts: ArrayLike) -> Floats:
    """Columns ``(n, K)`` of Y or Z, each divided by its class's count ``(K,)`` of labels.

    It can be done before or after the propagation, as S (Y D) = (S Y) D. Columns of classes without
    labels do not change.

    Examples
    --------
    >>> scaled_by_class(np.array([[6.0, 6.0, 0.0]]), [3, 1, 0]).tolist()
    [[2.0, 6.0, 0.0]]
    """
    number = np.asarray(counts, dtype=np.float64)
    return np.asarray(columns / np.where(number > 0, number, 1))


def _solve(graph: sparse.csr_array, right: Floats, alpha: float, tolerance: float) -> Floats:
    """(I - alpha W)^-1 B, block by block of columns; ``right`` is overwritten."""
    identity = sparse.csr_array(sparse.identity(graph.shape[0], format="csr"))
    system = sparse.csr_array(identity - alpha * sparse.csr_array(graph, dtype=np.float64))
    narrow = system.astype(np.float32)

    def solve(columns: slice) -> None:
        block = right[:, columns]
        largest = np.abs(block).max(axis=0, initial=0)
        largest[largest == 0] = 1  # dividing by it prevents squares from over- or underflowing
        solution = _refined(system, narrow, block / largest, tolerance) * largest
        # S has no negative entries; negative values are within the tolerance.
        positive = (block >= 0).all(axis=0)
        right[:, columns] = np.where(positive, np.maximum(solution, 0), solution)

    with ThreadPoolExecutor(usable_cpus()) as pool:
        list(pool.map(solve, blocks(right.shape[1], _COLUMNS_AT_A_TIME)))
    return right


def _refined(
    system: sparse.csr_array, narrow: sparse.csr_array, right: Floats, tolerance: float
) -> Floats:
    """Solve in float32, twice as fast, and correct the float64 residual until it is small."""
    solution = np.zeros_like(right)
    missing = right
    limits = tolerance * _norms(right)
    for _ in range(_MOST_ROUNDS):
        size = _norms(missing)
        if (size <= limits).all():
            return solution
        # Finished columns get a zero right-hand side, and so no further step.
        scale = np.divide(1, size, out=np.zeros_like(size), where=size > limits)
        solution += _conjugate_gradients(narrow, (missing * scale).astype(np.float32)) * size
        missing = right - system @ solution
    raise UserError(
        f"alpha is too close to 1 for a tolerance of {tolerance}; lower it or raise the tolerance",
        "no-convergence",
    )


def _conjugate_gradients(system: sparse.csr_array, right: Singles) -> Singles:
    """System^-1 B for all columns at once, each with its own step sizes, to a residual of 5e-5."""
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = right.copy()
    part = np.empty_like(right)
    squares = _column_dots(residual, residual)
    limits = _INNER_TOLERANCE**2 * squares
    for _ in range(_MOST_STEPS):
        if not (active := squares > limits).any():
            break
        image = system @ direction
        curvature = _column_dots(direction, image)
        step = np.divide(squares, curvature, out=np.zeros_like(squares), where=active)
        solution += np.multiply(direction, step, out=part)
        residual -= np.multiply(image, step, out=part)
        before, squares = squares, _column_dots(residual, residual)
        # A finished column has step 0 and does not change.
        direction *= np.divide(squares, before, out=np.zeros_like(squares), where=active)
        direction += residual
    return solution


def _norms(columns: Floats) -> Floats:
    return np.sqrt(_column_dots(columns, columns))


def _column_dots(a: NDArray[_Real], b: NDArray[_Real]) -> NDArray[_Real]:
    """``(c,)``, scalar products of the columns of two ``(n, c)``."""
    dots: NDArray[_Real] = np.einsum("ij,ij->j", a, b)
    return dots


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
    """Rows of the sum that belong to the participant at ``position``."""
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
    """Refuse label counts ``(K,)`` that are not whole numbers from 0: what is random is not."""
    if (counts < 0).any() or (counts != np.rint(counts)).any():
        raise WrongSumError("A sum of labels holds counts that are none: masks did not cancel.")


def scores_of(rows: Floats, *, class_scaling: bool = True) -> Floats:
    """Class scores ``(u_i, K)`` of a client's unlabeled points from its rows ``(u_i + 1, K)``."""
    scores, counts = rows[:-1], rows[-1]
    # Exact sums are not negative; negative values are rounding errors of the fixed point.
    scores = np.maximum(scores, 0)
    return scaled_by_class(scores, counts) if class_scaling else scores
