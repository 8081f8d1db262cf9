"""The error of a model without one label: its confusion matrix from class shares of sets alone.

Let z be what a model says of a point, a one-hot row, and r the class shares of the point's set. If
classes look alike in all sets (FedUL's assumption), E[z | set] = Σ_k r_k E[z | class k]. So with
A = Σ r rᵀ and B = Σ r zᵀ over points of all clients, C = A⁻¹ B has C_kj = P(says j | class k). All
that leaves a client are sums. The inverse of black-box shift estimation (Lipton et al. 2018), where
C is known and r is not.

A model says too well of points that it has learned from. For heads in closed form each client takes
each of its points out of the head again, exactly: the head without a point follows from inner
products of the point and the class means under the inverse covariance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.learning.closed_form import ABSENT, LEAST_SHARE, Gaussians

DIRECTIONS = 16
"""Random directions by which a point's length under the inverse covariance is estimated: its
relative deviation is √(2 / 16), about a third, which moves errors by a tenth of a point."""
MOST_CLASSES = 30
"""Largest K: the fit of C has K² unknowns, and its errors need K (K + 1) (K + 2) / 6 sums."""
_AT_ONCE = 2048
"""Points whose systems of equations are in memory together."""
_SENT = "leave-one-out/"
"""Beginning of the names of its arrays in messages."""
_ROW_WEIGHT = 1e3
"""Weight of "rows add up to 1" beside the fit, relative to it."""


# A point taken out of a head again


class LeaveOneOut(NamedTuple):
    """What a client needs beside the head to take its points out of it, one by one.

    Attributes
    ----------
    mean : ``(d,)``, m, of all points.
    sketch : ``(d, p)``, C^-1/2 times random directions: \\|(x - m) sketch\\|²/p estimates
        (x - m)ᵀ C⁻¹ (x - m).
    inner : ``(K, K)``, (μ_k - m)ᵀ C⁻¹ (μ_l - m).
    gram : ``(K, K)``, A of the sums that the head is of.
    offset : ``(K,)``, logarithms of the class priors that the head is for.
    part : how far eigenvalues of the covariance are pulled to their mean.
    """

    mean: Floats
    sketch: Floats
    inner: Floats
    gram: Floats
    offset: Floats
    part: float

    def arrays(self, dtype: Any) -> Arrays:
        """All of it but ``part``, to be sent."""
        parts = self._asdict()
        return {one: parts[one.removeprefix(_SENT)].astype(dtype) for one in ARRAYS_OF_ONE}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], part: float) -> LeaveOneOut:
        """What :meth:`arrays` gives, of a client's ``arrays``."""
        sent = {one.removeprefix(_SENT): arrays[one].astype(np.float64) for one in ARRAYS_OF_ONE}
        return cls(**sent, part=part)

    @classmethod
    def of(
        cls,
        gaussians: Gaussians,
        gram: Floats,
        prior: Floats,
        part: float,
        spectrum: tuple[Floats, Floats],
        rng: np.random.Generator,
    ) -> LeaveOneOut:
        """Of a head; ``spectrum`` is :func:`fedul_flwr.learning.closed_form.shrunk_spectrum`."""
        values, vectors = spectrum
        roots = vectors / np.sqrt(values)
        directions = rng.normal(size=(len(values), DIRECTIONS))
        within = gaussians.from_mean @ roots
        with np.errstate(divide="ignore"):
            offset = np.where(gaussians.present & (prior > 0), np.log(prior), ABSENT)
        return cls(
            gaussians.mean, roots @ directions, within @ within.T, gram, np.asarray(offset), part
        )

    def logits(
        self, features: NDArray[np.floating], soft: Floats, weight: Floats, *, stated: bool
    ) -> Floats:
        """``(n, K)``, of each point by the head that has all other points.

        In the span of a point x (about m) and the class means about m everything is known by inner
        products under C⁻¹. Without the point, mean k is μ_k + u_k (Σ_j r_j μ_j - x) with
        u = (A - r rᵀ)⁻¹ r, and the covariance loses x xᵀ / n and gains what the means explain less:
        both in that span, so that its inverse there follows by a K + 1 x K + 1 system. Of a point
        with V views x is their mean, and x xᵀ that of theirs: the system is one of K + V.

        Parameters
        ----------
        features : ``(n, d)`` or ``(n, V, d)``, of which the first view is judged.
        soft : ``(n, K)``, with which each point is in the sums.
        weight : ``(K, d)``, of the head.
        stated : as of :func:`fedul_flwr.learning.closed_form.soft_sums`.
        """
        x = np.asarray(features, np.float64) - self.mean
        x = x if x.ndim == 3 else x[:, None]
        sketched = x @ self.sketch
        inner = sketched @ sketched.transpose(0, 2, 1) / self.sketch.shape[1]
        parts = range(0, len(x), _AT_ONCE)
        of_parts = [
            self._of_part(inner[part], x[part] @ weight.T, soft[part], stated=stated)
            for part in (slice(start, start + _AT_ONCE) for start in parts)
        ]
        return np.concatenate([np.empty((0, len(self.gram))), *of_parts]) + self.offset

    def _of_part(self, inner_x: Floats, to_means: Floats, soft: Floats, *, stated: bool) -> Floats:
        """Logits but for the offset, of points by products of views ``(n, V, V)``, and of these
        with the means ``(n, V, K)``."""
        count, views, classes = to_means.shape
        total, masses = float(self.gram.sum()), self.gram.sum(axis=1)
        # Rows: means without the point, as combinations of its views and the means.
        means = np.zeros((count, classes, views + classes))
        diagonal = np.arange(classes)
        means[:, diagonal, views + diagonal] = 1
        if stated:
            regular = np.linalg.inv(self.gram + np.eye(classes))
            u = soft @ regular
            u /= (1 - np.einsum("nk,nk->n", u, soft))[:, None]
            means[:, :, :views] -= u[:, :, None] / views
            means[:, :, views:] += u[:, :, None] * soft[:, None, :]
        else:
            u = soft / (masses + 1 - soft)
            means[:, :, :views] -= u[:, :, None] / views
            means[:, diagonal, views + diagonal] += u
        others = np.maximum(masses - soft, 0) / (total - 1)
        change = -np.einsum("nk,nki,nkj->nij", others, means, means)
        change[:, views + diagonal, views + diagonal] += masses / (total - 1)
        change[:, range(views), range(views)] -= 1 / (views * (total - 1))
        change *= 1 - self.part
        inner = np.empty((count, views + classes, views + classes))
        inner[:, :views, :views] = inner_x
        inner[:, :views, views:] = to_means
        inner[:, views:, :views] = to_means.transpose(0, 2, 1)
        inner[:, views:, views:] = self.inner
        # (C + U E Uᵀ)⁻¹ between columns of U, of inner products G under C⁻¹, is (I + G E)⁻¹ G.
        without = np.linalg.solve(np.eye(views + classes) + inner @ change, inner)
        along = np.einsum("nkj,nj->nk", means, without[:, :, 0])
        squares = np.einsum("nki,nij,nkj->nk", means, without, means)
        return np.asarray(along - squares / 2)


ARRAYS_OF_ONE = frozenset(f"{_SENT}{name}" for name in LeaveOneOut._fields[:-1])
"""Names of the arrays of a :class:`LeaveOneOut` in messages."""


# The confusion matrix


class ShareSums(NamedTuple):
    """Sums over points, of one client or of all.

    Attributes
    ----------
    gram : ``(K, K)``, A = Σ r rᵀ.
    said : ``(K, K)``, B = Σ r zᵀ.
    third : ``(K, K, K)``, Σ r r r, of which standard errors follow.
    """

    gram: Floats
    said: Floats
    third: Floats

    @classmethod
    def of(cls, shares: Floats, predicted: NDArray[np.integer]) -> ShareSums:
        """Of points with class shares ``(n, K)`` and predicted classes ``(n,)``."""
        said = np.eye(shares.shape[1])[predicted]
        third = np.einsum("ni,nj,nk->ijk", shares, shares, shares, optimize=True)
        return cls(shares.T @ shares, shares.T @ said, third)

    def flat(self) -> Floats:
        """All numbers once: ``(share_sums_size(K),)``."""
        size = len(self.gram)
        return np.concatenate(
            [
                self.gram[np.triu_indices(size)],
                self.said.ravel(),
                self.third[tuple(_sorted_triples(size).T)],
            ]
        )

    @classmethod
    def of_flat(cls, numbers: Floats, classes: int) -> ShareSums:
        """What :meth:`flat` gives, or a sum of these."""
        rows, columns = np.triu_indices(classes)
        gram = np.empty((classes, classes))
        gram[rows, columns] = gram[columns, rows] = numbers[: len(rows)]
        said = numbers[len(rows) : len(rows) + classes**2].reshape(classes, classes)
        third, triples = np.empty((classes,) * 3), _sorted_triples(classes)
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            third[tuple(triples[:, order].T)] = numbers[len(rows) + classes**2 :]
        return cls(gram, said, third)


def share_sums_size(classes: int) -> int:
    """How many numbers :class:`ShareSums` are."""
    k = classes
    return k * (k + 1) // 2 + k * k + k * (k + 1) * (k + 2) // 6


def _sorted_triples(size: int) -> NDArray[np.intp]:
    triples = np.indices((size,) * 3).reshape(3, -1).T
    return triples[(triples[:, 0] <= triples[:, 1]) & (triples[:, 1] <= triples[:, 2])]


class KnownError(NamedTuple):
    """What sums say of a model.

    Attributes
    ----------
    error : percent of points that it gets wrong.
    deviation : its standard error, in percentage points.
    confusion : ``(K, K)``, C: the probability of each prediction for each class.
    """

    error: float
    deviation: float
    confusion: Floats


def known_error(sums: ShareSums, prior: Floats) -> KnownError:
    """The error of a model, 1 - Σ_k π_k C_kk, at class priors ``prior`` ``(K,)``.

    C is the least squares fit to B whose rows are probabilities. The standard error takes each
    prediction as drawn from the row of its point's class, the numbers of each class in a set as
    known, and class shares as exact.

    Raises
    ------
    ValueError
        If class shares of all sets together do not tell the classes apart, sums are not those of
        points, or K is above :data:`MOST_CLASSES`.
    """
    classes, masses = len(prior), sums.gram.sum(axis=1)
    if classes > MOST_CLASSES:
        raise ValueError(f"{classes} classes, and errors are known of {MOST_CLASSES} at most")
    slack = 1e-6 * float(masses.sum())
    if (sums.said < -slack).any() or (abs(sums.said.sum(axis=1) - masses) > slack).any():
        raise ValueError("what the model says is not of the points with these class shares")
    present = np.flatnonzero(masses > LEAST_SHARE * masses.sum())
    try:
        lower = np.linalg.cholesky(sums.gram[np.ix_(present, present)])
    except np.linalg.LinAlgError:
        raise ValueError("class shares of all sets do not tell the classes apart") from None
    count = len(present)
    weight = _ROW_WEIGHT * math.sqrt(float(masses.sum()))
    rows = np.kron(np.eye(count), np.ones((1, classes))) * weight
    fit = np.kron(lower.T, np.eye(classes))
    wanted = np.linalg.solve(lower, sums.said[present]).ravel()
    flat, _ = nnls(
        np.vstack([fit, rows]),
        np.concatenate([wanted, np.full(count, weight)]),
        maxiter=100 * classes**2,
    )
    confusion = np.zeros((classes, classes))  # of a class that nobody has no point is right
    confusion[present] = flat.reshape(count, classes)
    # Error is 1 - Σ z·(π ∘ A⁻¹ r): each prediction weighs by its point's class shares.
    weights = np.zeros((classes, classes))
    inverse = np.linalg.inv(sums.gram[np.ix_(present, present)])
    weights[np.ix_(present, present)] = prior[present, None] * inverse
    spread = np.einsum("ja,lb,kab->kjl", weights, weights, sums.third, optimize=True)
    drawn = np.stack([np.diag(row) - np.outer(row, row) for row in confusion])
    variance = max(0.0, float(np.einsum("kjl,kjl->", spread, drawn)))
    right = float(prior @ np.diag(confusion))
    return KnownError(100 * (1 - right), 100 * math.sqrt(variance), confusion)
