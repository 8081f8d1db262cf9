"""Uncertain class priors of sets as Dirichlet distributions: from counts, intervals and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from fedul_flwr.data.types import Floats

JEFFREYS = 0.5
"""Count that Jeffreys' prior adds to every class (Jeffreys 1946)."""


@dataclass(frozen=True)
class Dirichlet:
    """A Dirichlet distribution for every set's class priors.

    Attributes
    ----------
    means : float64 ``(M, K)``, rows sum to 1.
    concentrations : float64 ``(M,)``, above 0: how many labels of a set its mean is worth.
        Infinite: the mean is exact.
    """

    means: Floats
    concentrations: Floats

    @classmethod
    def exact(cls, priors: Floats) -> Self:
        """Class priors ``(M, K)`` without any uncertainty."""
        return cls(priors, np.full(len(priors), np.inf))

    @classmethod
    def from_counts(cls, counts: ArrayLike) -> Self:
        """Posterior of counts under Jeffreys' prior, Dirichlet(counts + 1/2).

        Parameters
        ----------
        counts : ``(M, K)``, how many labeled points of every set have each class.
        """
        alpha = np.asarray(counts, dtype=np.float64) + JEFFREYS
        total = alpha.sum(axis=1)
        return cls(alpha / total[:, None], total)

    @classmethod
    def from_intervals(cls, low: Floats, high: Floats) -> Self:
        """Normalized midpoints, as uncertain as a uniform distribution over each interval.

        The variance of a row's Dirichlet distribution, Σ_k t_k(1 − t_k) / (s + 1), equals that of
        the uniform distributions, Σ_k (high_k − low_k)² / 12. This gives the concentration s, at
        least :data:`JEFFREYS` per class: nothing known is Jeffreys' prior.

        Parameters
        ----------
        low, high : ``(M, K)``, ends of the intervals; equal ends everywhere in a row are exact.
        """
        middle = (low + high) / 2
        means = middle / middle.sum(axis=1, keepdims=True)
        worth = _matched(means, ((high - low) ** 2).sum(axis=1) / 12)
        return cls(means, np.maximum(worth, JEFFREYS * means.shape[1]))

    @classmethod
    def from_noise(cls, priors: Floats, variance: float) -> Self:
        """Noisy class priors, each counted as the labels that are as uncertain as the noise.

        Parameters
        ----------
        priors : ``(M, K)``, with noise; a zero is a class whose noisy prior was cut off, so
            Jeffreys' prior is added as in :meth:`from_counts`.
        variance : mean over rows of the expected squared error, Σ_k E(noisy_k − true_k)².
        """
        worth = _matched(priors, np.full(len(priors), variance)).mean()
        return cls.exact(priors) if np.isinf(worth) else cls.from_counts(worth * priors)


def _matched(means: Floats, variance: Floats) -> Floats:
    """Concentrations ``(M,)`` whose Dirichlet distributions have the given summed variances, or 0
    where none varies as much."""
    spread = (means * (1 - means)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(variance > 0, spread / variance - 1, np.inf)
    return np.asarray(np.maximum(found, 0), dtype=np.float64)
