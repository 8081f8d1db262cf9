"""What each owner's points are off by, apart from which classes it has: a mixed model, from sums.

A point of owner o with class shares r has features x = Σ_k r_k μ_k + δ_o + e. Where each owner has
its own classes, their means and the offsets δ are easily taken for each other: the mean of an owner
alone says nothing, and offsets without a bound take the classes' differences with them. So they are
random (Laird and Ware 1982), δ_o ~ N(0, λ σ²) for the variance σ² of e, of each feature its own. λ,
one for all features, is that of the largest restricted likelihood (Patterson and Thompson 1971). It
is 0 where owners do not differ. Everything follows from sums over owners, one for each λ of a grid;
an owner's offset is its best linear prediction, made at home. ComBat (Johnson et al. 2007) shrinks
offsets likewise, after a fit with offsets that are not bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.errors import UserError
from fedul_flwr.learning.closed_form import LEAST_SHARE, ROUNDING, symmetric, triangle

RATIOS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)
"""λ that are compared. An owner of n points is moved by n λ / (1 + n λ) of what it seems off."""


class Seen(NamedTuple):
    """What one owner has: how many points, and their means of class shares and of features."""

    points: int
    shares: Floats
    features: Floats

    @classmethod
    def of(cls, features: NDArray[np.floating], shares: Floats) -> Seen:
        """Of features ``(n, d)``, or ``(n, V, d)`` of V views, and class shares ``(n, K)``."""
        x = np.asarray(features, np.float64)
        x = x.mean(axis=1) if x.ndim == 3 else x
        if not len(x):
            return cls(0, np.zeros(shares.shape[1]), np.zeros(x.shape[1]))
        return cls(len(x), shares.mean(axis=0), x.mean(axis=0))

    def moved(self, ratio: float) -> float:
        """By which part of what it seems off, its points are moved."""
        return self.points * ratio / (1 + self.points * ratio)


class EffectSums(NamedTuple):
    """Sums over owners, for each of G :data:`RATIOS` with w = n λ / (1 + n λ).

    Attributes
    ----------
    gram : ``(G, K, K)``, Σ_o (Σ r rᵀ - w n r̄ r̄ᵀ).
    sums : ``(G, K, d)``, Σ_o (Σ r xᵀ - w n r̄ x̄ᵀ).
    squares : ``(G, d)``, Σ_o (Σ x² - w n x̄²).
    logs : ``(G,)``, Σ_o log (1 + n λ).
    """

    gram: Floats
    sums: Floats
    squares: Floats
    logs: Floats

    @classmethod
    def of(cls, features: NDArray[np.floating], shares: Floats) -> EffectSums:
        """Of one owner's points; arguments of :meth:`Seen.of`."""
        x = np.asarray(features, np.float64)
        views = x if x.ndim == 3 else x[:, None]
        seen, mean = Seen.of(x, shares), views.mean(axis=1)
        part = np.array([seen.moved(ratio) * seen.points for ratio in RATIOS])
        square = (views**2).mean(axis=1).sum(axis=0)
        return cls(
            shares.T @ shares - np.multiply.outer(part, np.outer(seen.shares, seen.shares)),
            shares.T @ mean - np.multiply.outer(part, np.outer(seen.shares, seen.features)),
            square - np.multiply.outer(part, seen.features**2),
            np.log1p(seen.points * np.array(RATIOS)),
        )

    def flat(self) -> Floats:
        """All numbers, of symmetric matrices one triangle: ``(effects_size(K, d),)``."""
        grams = [triangle(gram) for gram in self.gram]
        return np.concatenate([*grams, self.sums.ravel(), self.squares.ravel(), self.logs])

    @classmethod
    def of_flat(cls, numbers: Floats, classes: int, features: int) -> EffectSums:
        """What :meth:`flat` gives, or a sum of these."""
        count, one = len(RATIOS), classes * (classes + 1) // 2
        cuts = np.cumsum([count * one, count * classes * features, count * features])
        grams, sums, squares, logs = np.split(numbers, cuts)
        return cls(
            np.stack([symmetric(part, classes) for part in grams.reshape(count, one)]),
            sums.reshape(count, classes, features),
            squares.reshape(count, features),
            logs,
        )


def effects_size(classes: int, features: int) -> int:
    """How many numbers sums are."""
    of_one = classes * (classes + 1) // 2 + (classes + 1) * features + 1
    return len(RATIOS) * of_one


class Reference(NamedTuple):
    """From what owners' offsets follow: the mean ``(d,)`` of all points, how far the classes' means
    ``(K, d)`` are from it, and λ."""

    mean: Floats
    from_mean: Floats
    ratio: float

    def arrays(self) -> Arrays:
        """All of it, to be sent."""
        return dict(zip(REFERENCE, map(np.asarray, self), strict=True))

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Reference | None:
        """What :meth:`arrays` gives, among arrays of a message; ``None`` where it is not sent."""
        if not any(name in arrays for name in REFERENCE):
            return None
        mean, from_mean, ratio = (np.asarray(arrays[name], np.float64) for name in REFERENCE)
        return cls(mean, from_mean, float(ratio))

    def offset(self, seen: Seen) -> Floats:
        """δ ``(d,)``, the best linear prediction of what an owner's features are off by."""
        off = seen.features - self.mean - seen.shares @ self.from_mean
        return np.asarray(seen.moved(self.ratio) * off)


REFERENCE = ("owners/mean", "owners/from-mean", "owners/ratio")
"""Names of the arrays of a :class:`Reference` in messages."""


def _wrong() -> UserError:
    return UserError(
        "The sums of how far owners differ are not those of their points: one of them has sent "
        "others. A sum does not show which.",
        "sum-wrong",
    )


def fit_effects(sums: EffectSums) -> Reference:
    """Class means and λ of the largest restricted likelihood, summed over features that differ.

    Class means are pulled to the mean of all points by one point, as in
    :func:`~fedul_flwr.learning.closed_form.fit_gaussians`.

    Raises
    ------
    UserError
        If sums are those of no points.
    """
    classes, masses = sums.gram.shape[1], sums.gram[0].sum(axis=1)
    total = float(masses.sum())
    if not (np.isfinite(total) and total > 0.5):
        raise _wrong()
    mean = sums.sums[0].sum(axis=0) / total
    whole = sums.squares[0] - total * mean**2
    floor = max(LEAST_SHARE * float(whole.max()), ROUNDING * total * float((mean**2).max()))
    differs = whole > floor
    fits, likelihoods = [], []
    for gram, of_classes, squares, logs in zip(*sums, strict=True):
        regular, counts = gram + np.eye(classes), gram.sum(axis=1)
        right = of_classes - np.outer(counts, mean)
        try:
            from_mean = np.linalg.solve(regular, right)
        except np.linalg.LinAlgError:
            raise _wrong() from None
        about = squares - 2 * mean * of_classes.sum(axis=0) + counts.sum() * mean**2
        rest = np.maximum(about - np.einsum("kd,kd->d", from_mean, right), floor)[differs]
        beside = logs + np.linalg.slogdet(regular)[1]
        fits.append(from_mean)
        likelihoods.append(-((total - classes) * np.log(rest).sum() + len(rest) * beside) / 2)
    best = int(np.argmax(likelihoods))
    return Reference(mean, fits[best], RATIOS[best])
