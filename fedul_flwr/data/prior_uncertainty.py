"""Uncertain class priors of sets as Dirichlet distributions: from counts, intervals and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

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

    @property
    def finite_concentrations(self) -> Floats:
        """``(M,)``: :attr:`concentrations`, 0 for exact rows, which no count changes."""
        return np.where(np.isinf(self.concentrations), 0.0, self.concentrations)

    @classmethod
    def exact(cls, priors: Floats) -> Self:
        """Class priors ``(M, K)`` without any uncertainty.

        Examples
        --------
        >>> Dirichlet.exact(np.array([[0.75, 0.25]])).concentrations.tolist()
        [inf]
        """
        return cls(priors, np.full(len(priors), np.inf))

    @classmethod
    def from_counts(cls, counts: ArrayLike) -> Self:
        """Posterior of counts under Jeffreys' prior, Dirichlet(counts + 1/2).

        Parameters
        ----------
        counts : ``(M, K)``, how many labeled points of every set have each class.

        Examples
        --------
        >>> found = Dirichlet.from_counts([[9, 0]])
        >>> found.means.round(4).tolist(), found.concentrations.tolist()
        ([[0.95, 0.05]], [10.0])
        """
        alpha = np.asarray(counts, dtype=np.float64) + JEFFREYS
        total = alpha.sum(axis=1)
        return cls(alpha / total[:, None], total)

    @classmethod
    def from_intervals(cls, low: Floats, high: Floats) -> Self:
        """Normalized midpoints, as uncertain as a uniform distribution over each interval.

        A row is worth as many labels as :func:`effective_labels` says of the variances of the
        uniform distributions, (high_k − low_k)² / 12, at least :data:`JEFFREYS` per class: nothing
        known is Jeffreys' prior.

        Parameters
        ----------
        low, high : ``(M, K)``, ends of the intervals; equal ends everywhere in a row are exact.

        Examples
        --------
        >>> found = Dirichlet.from_intervals(np.array([[0.2, 0.6]]), np.array([[0.4, 0.8]]))
        >>> found.means.round(4).tolist(), found.concentrations.round(4).tolist()
        ([[0.3, 0.7]], [62.0])
        """
        middle = (low + high) / 2
        means = middle / middle.sum(axis=1, keepdims=True)
        worth = effective_labels(means, (high - low) ** 2 / 12)
        return cls(means, np.maximum(worth, JEFFREYS * means.shape[1]))

    @classmethod
    def from_noise(cls, priors: Floats, worth: float) -> Self:
        """Noisy class priors, each counted as so many labels (:func:`effective_labels`).

        A zero is a class that the noise cut off, so Jeffreys' prior is added as in
        :meth:`from_counts`. If ``worth`` is infinite there is no noise.

        Examples
        --------
        >>> found = Dirichlet.from_noise(np.array([[1.0, 0.0]]), worth=9)
        >>> found.means.round(4).tolist(), found.concentrations.tolist()
        ([[0.95, 0.05]], [10.0])
        """
        return cls.exact(priors) if np.isinf(worth) else cls.from_counts(worth * priors)


def effective_labels(means: Floats, variances: Floats) -> Floats:
    """How many labels of each set its class priors are worth, 0 or more, ``(M,)``.

    The effective sample size of Pearson's chi-square statistic: the expected value of
    Σ_k (estimate_k − t_k)² / t_k is (K − 1) / (s + 1) for a Dirichlet distribution with mean t and
    concentration s. Solved for s, with the K classes that can occur, t_k > 0.

    Parameters
    ----------
    means : ``(M, K)``, t, rows sum to 1.
    variances : ``(M, K)``, expected (estimate_k − t_k)²; all zero in a row gives infinity.

    Examples
    --------
    A share of 0.5 with a standard deviation of 0.05 is worth 99 labels:

    >>> effective_labels(np.array([[0.5, 0.5]]), np.array([[0.0025, 0.0025]])).round(4).tolist()
    [99.0]
    """
    possible = means > 0
    ratios = np.where(possible, variances / np.where(possible, means, 1), 0).sum(axis=1)
    freedom = possible.sum(axis=1) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where(ratios > 0, freedom / ratios - 1, np.inf)
    return np.asarray(np.maximum(sizes, 0), dtype=np.float64)
