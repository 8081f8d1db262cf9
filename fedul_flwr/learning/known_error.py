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
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.learning.calibration import (
    MARGINS,
    TEMPERATURES,
    near_the_top,
    sure_by_temperature,
)
from fedul_flwr.learning.closed_form import ABSENT, LEAST_SHARE, Gaussians, symmetric, triangle

DIRECTIONS = 32
"""Random directions by which a point's length under the inverse covariance is estimated, scaled so
that the mean length is exact: its relative deviation is √(2 / 32), a quarter. All clients have the
same, and deviations do not cancel: with 16 and no scale they moved errors by a point and more."""
MOST_CLASSES = 30
"""Largest K: the fit of C has K² unknowns, and its errors need K (K + 1) (K + 2) / 6 sums."""
CORRECTED_WITHIN = 0.25
"""Standard deviation of a correction by :func:`moved_by_others`, as a part of it."""
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
    clipped : ``(d, K)``, C^-1/2 times the eigenvectors of the covariance whose eigenvalues were
        negative and became 0; columns of zeros beyond these, which are fewer than K.
    follows : ``(K,)``, how much of a change between each of these and the others is left.
    inner : ``(K, K)``, (μ_k - m)ᵀ C⁻¹ (μ_l - m).
    gram : ``(K, K)``, A of the sums that the head is of.
    offset : ``(K,)``, logarithms of the class priors that the head is for.
    part : how far eigenvalues of the covariance are pulled to their mean.
    """

    mean: Floats
    sketch: Floats
    clipped: Floats
    follows: Floats
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
        sketch = roots @ rng.normal(size=(len(values), DIRECTIONS))
        masses = gram.sum(axis=1)
        between = (gaussians.from_mean.T * (masses / masses.sum())) @ gaussians.from_mean
        spread = gaussians.covariance + between  # of all points about their mean
        lengths = [float(((spread @ by) * by).sum()) for by in (roots, sketch)]
        sketch *= math.sqrt(lengths[0] * DIRECTIONS / lengths[1]) if min(lengths) > 0 else 1.0
        within = gaussians.from_mean @ roots
        # Class means explain K - 1 directions at most, and so no more variances are negative.
        raw = np.einsum("dp,dp->p", vectors, gaussians.covariance @ vectors)
        below, size = np.minimum(raw, 0)[: len(prior)], min(len(raw), len(prior))
        clipped, follows = np.zeros((len(raw), len(prior))), np.zeros(len(prior))
        clipped[:, :size] = roots[:, :size] * (below < 0)
        # Of λ > 0 and ν < 0 first order keeps λ / (λ - ν) of a change between them; the mean over λ
        # weighs each as points do under C⁻¹.
        above = np.maximum(raw, 0)
        weights = above / values
        for at, value in enumerate(below):
            part_left = above / np.where(above > 0, above - value, 1)
            follows[at] = weights @ part_left / max(float(weights.sum()), LEAST_SHARE)
        with np.errstate(divide="ignore"):
            offset = np.where(gaussians.present & (prior > 0), np.log(prior), ABSENT)
        inner = within @ within.T
        return cls(
            *(gaussians.mean, sketch, clipped, follows, inner, gram, np.asarray(offset)), part=part
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
        lengths = (self.clipped**2).sum(axis=0)
        along = (weight @ self.clipped) / np.where(lengths > 0, lengths, 1)
        parts = range(0, len(x), _AT_ONCE)
        of_parts = [
            self._of_part(
                *(inner[part], x[part] @ weight.T, x[part] @ self.clipped, along),
                *(soft[part], stated),
            )
            for part in (slice(start, start + _AT_ONCE) for start in parts)
        ]
        return np.concatenate([np.empty((0, len(self.gram))), *of_parts]) + self.offset

    def _of_part(
        self,
        inner_x: Floats,
        to_means: Floats,
        x_clipped: Floats,
        means_clipped: Floats,
        soft: Floats,
        stated: bool,
    ) -> Floats:
        """Logits but for the offset, of points by products of views ``(n, V, V)``, and of these
        with the means ``(n, V, K)``; what views and means ``(K, K)`` are where C is clipped."""
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
        # Where C is not clipped, columns U change by all of E, where it is, by none, and between
        # both by a part: V E Vᵀ with columns V = [free part of U, clipped part times `follows`].
        to_columns = between = inner
        changes = change
        if self.clipped.any():
            half = views + classes
            whole = np.empty((count, half, x_clipped.shape[2]))
            whole[:, :views], whole[:, views:] = x_clipped, means_clipped
            partly = whole * self.follows
            free = inner - whole @ whole.transpose(0, 2, 1)
            to_columns = np.concatenate([free, whole @ partly.transpose(0, 2, 1)], axis=2)
            between, changes = np.zeros((2, count, 2 * half, 2 * half))
            between[:, :half, :half] = free
            between[:, half:, half:] = partly @ partly.transpose(0, 2, 1)
            changes[:, :half] = np.concatenate([change, change], axis=2)
            changes[:, half:, :half] = change
        # (C + V E Vᵀ)⁻¹ between columns of U is UᵀC⁻¹U - UᵀC⁻¹V (I + E VᵀC⁻¹V)⁻¹ E VᵀC⁻¹U.
        moved = np.linalg.solve(
            np.eye(between.shape[1]) + changes @ between, changes @ to_columns.transpose(0, 2, 1)
        )
        without = inner - to_columns @ moved
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
    uncorrected : ``(K, K)``, B without :func:`moved_by_others`, of which the error is the less
        certain the more that changes.
    third : ``(K, K, K)``, Σ r r r, of which standard errors follow.
    unsure : ``(K, K)``, Σ diag(q) - q qᵀ of posteriors q, by which they follow logits.
    sure : ``(T,)``, Σ of the largest probability with logits divided by each of
        :data:`~fedul_flwr.learning.calibration.TEMPERATURES`.
    near : ``(G, K, K)``, Σ r [the logit of class k is at most g below the largest] for each g of
        :data:`~fedul_flwr.learning.calibration.MARGINS`.
    drawn : Σ of how far a point's class is drawn by its set's class shares: 0 where they are those
        of the points themselves, 1 where points were drawn from a large set of these shares, and
        n / (κ + 1) for n points of a set whose shares are estimates worth κ labels, which all its
        points share.
    """

    gram: Floats
    said: Floats
    uncorrected: Floats
    third: Floats
    unsure: Floats
    sure: Floats
    near: Floats
    drawn: float

    @classmethod
    def of(
        cls,
        shares: Floats,
        logits: Floats,
        soft: Floats,
        correction: Floats | float = 0.0,
        drawn: float = 0.0,
    ) -> ShareSums:
        """Of points with class shares, logits and posteriors ``(n, K)``; ``correction`` of others'
        soft labels is in the logits."""
        one_hot = np.eye(shares.shape[1])
        said, before = (one_hot[of.argmax(axis=1)] for of in (logits, logits - correction))
        third = np.einsum("ni,nj,nk->ijk", shares, shares, shares, optimize=True)
        unsure = np.diag(soft.sum(axis=0)) - soft.T @ soft
        return cls(
            *(shares.T @ shares, shares.T @ said, shares.T @ before, third, unsure),
            *(sure_by_temperature(logits), near_the_top(shares, logits), drawn),
        )

    @property
    def masses(self) -> Floats:
        """``(K,)``, how many points each class has, Σ r."""
        return np.asarray(self.gram.sum(axis=1))

    def flat(self) -> Floats:
        """All numbers once: ``(share_sums_size(K),)``."""
        triples = tuple(_sorted_triples(len(self.gram)).T)
        once = triangle(self.gram), triangle(self.unsure), self.third[triples]
        whole = self.said, self.uncorrected, self.sure, self.near
        return np.concatenate([*once, *map(np.ravel, whole), [self.drawn]])

    @classmethod
    def of_flat(cls, numbers: Floats, classes: int) -> ShareSums:
        """What :meth:`flat` gives, or a sum of these."""
        triples = _sorted_triples(classes)
        square = classes, classes
        shapes = square, square, (len(TEMPERATURES),), (len(MARGINS), *square)
        sizes = [classes * (classes + 1) // 2] * 2 + [len(triples), *map(math.prod, shapes)]
        gram, unsure, once, *flat, drawn = np.split(numbers, np.cumsum(sizes))
        third = np.empty((classes,) * 3)
        for order in permutations(range(3)):
            third[tuple(triples[:, order].T)] = once
        said, before, sure, near = (
            part.reshape(shape) for part, shape in zip(flat, shapes, strict=True)
        )
        triangles = symmetric(gram, classes), symmetric(unsure, classes)
        return cls(triangles[0], said, before, third, triangles[1], sure, near, float(drawn[0]))


def share_sums_size(classes: int) -> int:
    """How many numbers :class:`ShareSums` are."""
    k = classes
    by_class = (2 + len(MARGINS)) * k * k
    return k * (k + 1) + k * (k + 1) * (k + 2) // 6 + by_class + len(TEMPERATURES) + 1


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
    right : ``(K,)``, which share of each class it gets right by A⁻¹ B as it is. It may be below 0
        or above 1 by chance, and on average it is right; the diagonal of C, whose rows are
        probabilities, is too small where sets say little.
    """

    error: float
    deviation: float
    confusion: Floats
    right: Floats


def known_error(sums: ShareSums, prior: Floats) -> KnownError:
    """The error of a model, 1 - Σ_k π_k (A⁻¹ B)_kk, at class priors ``prior`` ``(K,)``.

    C is the least squares fit to B whose rows are probabilities. The standard error takes each
    prediction as drawn from the row of its point's class, classes as drawn as far as the sums say,
    and corrections of refined heads as right within :data:`CORRECTED_WITHIN`.

    Raises
    ------
    ValueError
        If class shares of all sets together do not tell the classes apart, sums are not those of
        points, or K is above :data:`MOST_CLASSES`.
    """
    classes, masses = len(prior), sums.masses
    if classes > MOST_CLASSES:
        raise ValueError(f"{classes} classes, and errors are known of {MOST_CLASSES} at most")
    if masses.sum() < 0.5:
        raise ValueError("nobody has held out a point")
    slack = 1e-6 * float(masses.sum())
    both = np.stack([sums.said, sums.uncorrected])
    if (both < -slack).any() or (abs(both.sum(axis=2) - masses) > slack).any():
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
    of_class = float(np.einsum("kjl,kjl->", spread, drawn))
    of_classes, uncorrected = np.zeros((2, classes))
    of_classes[present] = np.diag(inverse @ sums.said[np.ix_(present, present)])
    uncorrected[present] = np.diag(inverse @ sums.uncorrected[np.ix_(present, present)])
    right = float(prior @ of_classes)
    unknown = CORRECTED_WITHIN * float(prior @ (of_classes - uncorrected))
    # If the class is drawn, too: E[(w·z)²] less its mean's square, of all points the least.
    of_both = float(np.einsum("kjj,kj->", spread, confusion)) - right**2 / float(masses.sum())
    how_drawn = max(0.0, sums.drawn) / float(masses.sum())
    variance = max(0.0, of_class + how_drawn * (of_both - of_class))
    error = min(100.0, max(0.0, 100 * (1 - right)))
    deviation = 100 * math.hypot(math.sqrt(variance), unknown)
    return KnownError(error, deviation, confusion, of_classes)


def moved_by_others(moved: Floats, unsure: Floats, gram: Floats) -> Floats:
    """How far a refined head's logits of a point move, as others' soft labels no longer know it.

    Without a point the head before says other posteriors of all other points, and the refined head
    is made of these. By the mean of Σ diag(q) - q qᵀ over points, and where the covariance explains
    what moves, the class means of the refined head move along the point as far as its logits by
    the head before did, times that matrix over the classes' masses.

    Parameters
    ----------
    moved : ``(n, K)``, logits of each point by the head before without it, less those with it.
    unsure : ``(K, K)``, Σ diag(q) - q qᵀ over all points.
    gram : ``(K, K)``, A of the refined head, whose diagonal are the masses.
    """
    masses = np.maximum(gram.sum(axis=1), 1.0)
    return np.asarray(moved @ (unsure / masses[:, None]).T)


class Misfit(NamedTuple):
    """How far predictions are from what class shares say.

    Attributes
    ----------
    chance : the probability that they are as far by chance.
    excess : how many times as far as by chance, less one; at least 0.
    """

    chance: float
    excess: float


def misfit(shares: Floats, counts: Floats, confusion: Floats, *, sampled: float = 0.0) -> Misfit:
    """How far one owner's predictions are from what its class shares say with all owners' C.

    Of a set with n points and class shares r the counts have mean n rᵀ C, and with the stated
    number of points of each class the covariance V = n Σ_k r_k (diag(C_k) - C_k C_kᵀ); where the
    class of a point is drawn, too, n Cᵀ (diag(r) - r rᵀ) C is added. The sum of eᵀ (V + I)⁻¹ e over
    sets, e the differences, has the distribution of a multiple of chi-square with the same mean and
    variance (Satterthwaite 1946). With I no count below one is rare.

    Parameters
    ----------
    shares : ``(M, K)``.
    counts : ``(M, K)``, how often the model says each class of the points of each set.
    confusion : ``(K, K)``, C of all owners.
    sampled : which part of each set the points are not, by whose chance their class is drawn.
    """
    from scipy.stats import chi2

    distance = mean = variance = 0.0
    for share, count in zip(shares, counts, strict=True):
        size = count.sum()
        off = count - size * (share @ confusion)
        mixed = share @ confusion
        within = np.diag(mixed) - (confusion.T * share) @ confusion
        between = (confusion.T * share) @ confusion - np.outer(mixed, mixed)
        covariance = size * (within + sampled * between)
        weight = np.linalg.inv(covariance + np.eye(len(share)))
        explained = weight @ covariance
        distance += off @ weight @ off
        mean += np.trace(explained)
        variance += 2 * np.einsum("ij,ji->", explained, explained)
    if variance <= 1e-12:  # the model says one class of all points
        return Misfit(1.0, 0.0)
    scale = variance / (2 * mean)
    chance = float(chi2.sf(distance / scale, 2 * mean**2 / variance))
    return Misfit(chance, max(0.0, float(distance / mean) - 1))
