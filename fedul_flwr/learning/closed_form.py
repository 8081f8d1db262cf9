"""A last layer in closed form, from sums over clients: class means and a covariance.

A client's points have features x in R^d and soft labels r in [0, 1]^K, which add up to 1: one-hot
labels, the class shares of a point's set, or posteriors. All that leaves a client are sums. Class
means are their least squares fit (the mean map: Quadrianto et al. 2009; Patrini et al. 2014), with
one-hot labels the usual means; the head is a linear discriminant.
A mean of last layers drifts where clients lack classes, and a head from sums does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from fedul_flwr.arrays import Bools, Floats, Ints
from fedul_flwr.errors import UserError

MOST_FEATURES = 4096
"""Largest d: sums have d (d + 1) / 2 numbers, and the head takes eigenvalues of a d x d matrix."""
ABSENT = -1e4
"""Bias of a class that no point has."""
EM_STEPS = 50
"""Steps in which a client finds its class shares."""
SINKHORN_STEPS = 100
"""Most steps in which posteriors come to add up to what is stated of their set."""
LEAST_SCORE = -50.0
"""Least logarithm of a posterior relative to the largest of its point, in that."""
LEAST_SHARE = 1e-12
"""Relative size of eigenvalues and of class masses that count as 0."""
ROUNDING = 1e-14
"""The same of a variance beside the square of a mean: what float64 leaves of equal numbers."""


class SoftSums(NamedTuple):
    """Sums over points, of one client or of all.

    Attributes
    ----------
    gram : ``(K, K)``, Σ r rᵀ; where r depends on x, as posteriors do, its diagonal Σ r alone, with
        which the means are those of EM. Its sum is the number of points.
    sums : ``(K, d)``, Σ r xᵀ.
    second : ``(d, d)``, Σ x xᵀ.
    """

    gram: Floats
    sums: Floats
    second: Floats

    @property
    def num_points(self) -> float:
        """Number of points n."""
        return float(self.gram.sum())

    @property
    def masses(self) -> Floats:
        """``(K,)``, how many points each class has, Σ r."""
        return np.asarray(self.gram.sum(axis=1))

    @classmethod
    def total(cls, parts: Iterable[SoftSums]) -> SoftSums:
        """The sums over all points of one or more ``parts``."""
        return cls(*(np.asarray(sum(part)) for part in zip(*parts, strict=True)))

    def flat(self) -> Floats:
        """All numbers, of symmetric matrices one triangle: ``(sums_size(K, d),)``."""
        return np.concatenate([triangle(self.gram), self.sums.ravel(), triangle(self.second)])

    @classmethod
    def of_flat(cls, numbers: Floats, num_classes: int, num_features: int) -> SoftSums:
        """What :meth:`flat` gives, or a sum of these."""
        first = num_classes * (num_classes + 1) // 2
        second = first + num_classes * num_features
        return cls(
            symmetric(numbers[:first], num_classes),
            numbers[first:second].reshape(num_classes, num_features),
            symmetric(numbers[second:], num_features),
        )


def sums_size(num_classes: int, num_features: int) -> int:
    """How many numbers sums are."""
    k, d = num_classes, num_features
    return k * (k + 1) // 2 + k * d + d * (d + 1) // 2


@lru_cache(maxsize=4)
def _upper(size: int) -> tuple[Ints, Ints]:
    """Rows and columns of a triangle, which take longer to make than a sum over few points."""
    return np.triu_indices(size)


def triangle(matrix: Floats) -> Floats:
    """The numbers of a symmetric matrix once: of its upper triangle, by rows."""
    return np.asarray(matrix[_upper(len(matrix))])


def symmetric(numbers: Floats, size: int) -> Floats:
    """The matrix ``(size, size)`` of which :func:`triangle` gives these numbers."""
    matrix = np.empty((size, size))
    rows, columns = _upper(size)
    matrix[rows, columns] = numbers
    matrix[columns, rows] = numbers
    return matrix


def soft_sums(features: NDArray[np.floating], soft: Floats, *, stated: bool) -> SoftSums:
    """Sums over the points of one client.

    Parameters
    ----------
    features : ``(n, d)``, or ``(n, V, d)`` of V views of each point, which count 1 / V each.
    soft : ``(n, K)``, soft labels, rows that add up to 1.
    stated : whether soft labels do not depend on the features of their point, as labels and class
        shares of sets.

    Raises
    ------
    UserError
        If a feature is not finite.
    """
    x = np.asarray(features, np.float64)
    if not np.isfinite(x).all():
        raise UserError("Features of points are not finite, and have no sums.", "model-not-finite")
    # Shares of a file add up to 1 within a tolerance, which times x xᵀ far from 0 is much.
    soft = soft / soft.sum(axis=1, keepdims=True)
    gram = soft.T @ soft if stated else np.diag(soft.sum(axis=0))
    views = x if x.ndim == 3 else x[:, None]
    flat = views.reshape(-1, x.shape[-1])
    return SoftSums(gram, soft.T @ views.mean(axis=1), flat.T @ flat / views.shape[1])


def posteriors(logits: NDArray[np.floating], shares: Floats, prior: Floats | None = None) -> Floats:
    """Soft labels ``(n, K)`` by a model and what is known of each point's class.

    Parameters
    ----------
    logits : ``(n, K)``, of a model for the class priors ``prior``.
    shares : ``(n, K)``, class shares among which a point is drawn; a one-hot row stays.
    prior : ``(K,)``; by default uniform, which cancels.
    """
    with np.errstate(divide="ignore"):
        scores = np.asarray(logits, np.float64) + np.log(shares)
        if prior is not None:
            scores -= np.log(prior)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def posteriors_of_sets(
    logits: NDArray[np.floating],
    shares: Floats,
    prior: Floats | None,
    sets: Ints,
    drawn: Floats,
) -> Floats:
    """Posteriors ``(n, K)`` as :func:`posteriors` that add up to what is stated of each set.

    A set of n points with class shares r has n r_k points of class k. So its logits are moved by a
    number for each class such that the posteriors of its points add up to n r (Sinkhorn and Knopp
    1967: the joint distribution with these sums that is nearest to the posteriors). Where counts
    are uncertain only a part 1 / (1 + drawn) of each step is made (Chizat et al. 2018).

    Parameters
    ----------
    logits, shares, prior : as of :func:`posteriors`.
    sets : ``(n,)``, numbers of the points' sets, below M.
    drawn : ``(M,)``, variance of the number of points of a class in each set, relative to that of
        n points drawn by its class shares; 0 for exact shares of all points.

    Examples
    --------
    A set of two points, one of each class. Posteriors 0.9 and 0.5 of class 0 become 0.75 and 0.25,
    whose odds, 3 and 1/3, have the same ratio as 9 and 1:

    >>> logits = np.log([[0.9, 0.1], [0.5, 0.5]])
    >>> even, one_set = np.full((2, 2), 0.5), np.zeros(2, int)
    >>> posteriors_of_sets(logits, even, even[0], one_set, np.zeros(1))[:, 0].round(6).tolist()
    [0.75, 0.25]
    """
    shares = shares / shares.sum(axis=1, keepdims=True)  # those of a file within a tolerance
    weights = np.ones(shares.shape[1]) if prior is None else prior
    odds = np.divide(shares, weights, out=np.zeros(shares.shape), where=weights > 0)
    with np.errstate(divide="ignore"):
        scores = np.asarray(logits, np.float64) + np.log(odds)
    scores -= scores.max(axis=1, keepdims=True)
    # However sure the model is, a class that is possible stays within reach.
    plain = np.where(odds > 0, np.exp(np.maximum(scores, LEAST_SCORE)), 0.0)
    members = csr_matrix(
        (np.ones(len(sets)), (sets, np.arange(len(sets)))), (len(drawn), len(sets))
    )
    wanted, part = members @ shares, 1 / (1 + drawn[:, None])
    factors = np.ones(wanted.shape)
    for _ in range(SINKHORN_STEPS):
        rows = (plain * factors[sets]).sum(axis=1, keepdims=True)
        sums = members @ (plain / rows)
        before = factors
        factors = np.divide(wanted, sums, out=np.zeros(sums.shape), where=sums > 0) ** part
        if np.allclose(factors, before, rtol=1e-6, atol=0):
            break
    soft = plain * factors[sets]
    return np.asarray(soft / soft.sum(axis=1, keepdims=True))


def posteriors_by_em(
    logits: NDArray[np.floating], counts: Floats, prior: Floats, num_features: int
) -> Floats:
    """Soft labels ``(n, K)`` of one client's points, whose class shares follow from themselves.

    Shares are π = (c + 1 + Σ r) / their sum, with label counts c: the mean under a flat Dirichlet
    prior, and a step of EM (Saerens et al. 2002). So a client of two classes has nearly no others,
    and one of all classes may have labels of two. Log-likelihoods of d features, which depend on
    each other, are divided by √d / 3: else points say too surely of which class they are.

    Parameters
    ----------
    logits : ``(n, K)``, of a model for the class priors ``prior`` ``(K,)``.
    counts : ``(K,)``, the client's labels of each class.
    num_features : d.
    """
    with np.errstate(divide="ignore"):
        scores = np.asarray(logits, np.float64) - np.log(prior)
    scores /= max(1.0, math.sqrt(num_features) / 3)
    soft = np.tile((counts + 1) / (counts + 1).sum(), (len(scores), 1))
    for _ in range(EM_STEPS):
        masses = counts + 1 + soft.sum(axis=0)
        soft = posteriors(scores, np.tile(masses / masses.sum(), (len(scores), 1)))
    return soft


class Gaussians(NamedTuple):
    """Classes with means ``mean + from_mean`` and one covariance ``(d, d)``, not shrunk, which may
    be indefinite where it comes from class shares.

    ``mean`` ``(d,)`` is that of all points, and ``from_mean`` ``(K, d)`` how far the classes' are
    from it, of which digits are left however far points are from 0. ``present`` ``(K,)`` are the
    classes that some point has, and ``effective`` is the number of labeled points whose class means
    would be as certain: K² / tr A^-1 of the gram A, which is n for labels of classes of equal size.
    """

    mean: Floats
    from_mean: Floats
    covariance: Floats
    present: Bools
    effective: float

    @property
    def means(self) -> Floats:
        """``(K, d)``."""
        return np.asarray(self.mean + self.from_mean)


def fit_gaussians(sums: SoftSums) -> Gaussians:
    """Class means by least squares, pulled to the pooled mean by one point, and the covariance.

    With pooled mean m, masses c and gram A: μ = m + (A + I)^-1 (Σ r xᵀ - c mᵀ), and the covariance
    is the second moment minus what the means explain.
    """
    total, masses = sums.num_points, sums.masses
    mean = sums.sums.sum(axis=0) / total
    present = masses > LEAST_SHARE * total
    regular = sums.gram + np.eye(len(masses))
    from_mean = np.asarray(np.linalg.solve(regular, sums.sums - np.outer(masses, mean)), float)
    between = (from_mean.T * (masses / total)) @ from_mean
    covariance = sums.second / total - np.outer(mean, mean) - between
    count = int(present.sum())
    certainty = np.linalg.inv(regular[np.ix_(present, present)])
    effective = count**2 / float(np.trace(certainty))
    return Gaussians(mean, from_mean, (covariance + covariance.T) / 2, present, effective)


def default_shrinkage(gaussians: Gaussians) -> float:
    """d / (d + the effective number of points): the fewer points, the rounder the covariance.

    For labels and for sets it is within 0.6 percentage points of the best of ten values on 1,280
    pretrained features, and on random filters within 1.2 of other rules.
    """
    size = len(gaussians.covariance)
    return size / (size + gaussians.effective)


def linear_head(
    gaussians: Gaussians, prior: Floats, shrinkage: float | None = None
) -> tuple[Floats, Floats]:
    """Weight ``(K, d)`` and bias ``(K,)`` of the linear discriminant for class priors ``prior``.

    Negative eigenvalues of the covariance become 0, and all are shrunk to their mean. With pooled
    mean m weights are C^-1 (μ - m), which all classes share a part less of than of C^-1 μ: logits
    of points near m are small, and those of x are those of a x + b.

    Parameters
    ----------
    shrinkage : from 0 to 1; ``None`` is :func:`default_shrinkage`.
    """
    part = default_shrinkage(gaussians) if shrinkage is None else shrinkage
    return head_of_spectrum(gaussians, prior, shrunk_spectrum(gaussians, part))


def head_of_spectrum(
    gaussians: Gaussians, prior: Floats, spectrum: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """:func:`linear_head` with a covariance of this :func:`shrunk_spectrum`."""
    values, vectors = spectrum
    weight = (gaussians.from_mean @ vectors / values) @ vectors.T
    middle = gaussians.mean + gaussians.from_mean / 2
    with np.errstate(divide="ignore"):
        bias = np.log(prior) - np.einsum("kd,kd->k", weight, middle)
    return weight, np.where(gaussians.present & (prior > 0), bias, ABSENT)


def shrunk_spectrum(gaussians: Gaussians, part: float) -> tuple[Floats, Floats]:
    """Eigenvalues ``(d,)`` and eigenvectors, columns of ``(d, d)``, of the covariance in the head.

    Negative ones become 0, and all are shrunk to their mean by ``part``, from 0 to 1.
    """
    values, vectors = np.linalg.eigh(gaussians.covariance)
    values = np.maximum(values, 0)
    shrunk = (1 - part) * values + part * values.mean()
    # Of features that are the same for all points a variance of rounding may be left.
    rounding = ROUNDING * float((gaussians.mean**2).max(initial=0))
    floor = max(LEAST_SHARE * float(shrunk.max()), rounding) or 1.0
    return np.maximum(shrunk, floor), vectors


def condition(gram: Floats) -> float:
    """Condition number of a gram among the classes that are present; infinite if singular.

    Singular class shares do not tell which class is which: no least squares fit is unique.
    """
    masses = gram.sum(axis=1)
    present = masses > LEAST_SHARE * gram.sum()
    values = np.linalg.eigvalsh(gram[np.ix_(present, present)])
    return float(values[-1] / values[0]) if values[0] > LEAST_SHARE * values[-1] else np.inf


def balanced(gram: Floats) -> Floats:
    """A gram with each class scaled to A_kk = 1, whose condition is 1 for labels, however rare a
    class is."""
    roots = np.sqrt(np.maximum(np.diag(gram), 0))
    roots[roots == 0] = 1
    return np.asarray(gram / np.outer(roots, roots))
