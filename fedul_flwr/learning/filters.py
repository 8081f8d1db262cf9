"""The second moments of small patches of images, a sum over clients, and the filters of them.

Filters are random directions v from the run's seed in the space in which patches vary alike
everywhere, w = (M + 10)^-1/2 v (whitening: Coates, Lee and Ng, AISTATS 2011). So everybody who has
the moments M can make them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import BadMessageError
from fedul_flwr.learning.batches import gather, to_input
from fedul_flwr.learning.closed_form import symmetric, triangle
from fedul_flwr.models.whitened_filters import CONTRAST, FILTERS, MOMENTS

RIDGE = 10.0
"""Added to eigenvalues of the moments before their root."""
MOST_IMAGES, MOST_STEPS = 200, 14
"""Images of a client in the sum, and about how many patches of each a side: 40,000 in all."""
_AT_ONCE = 50
"""Images whose patches are in memory together."""


def patch_sums(stored: Inputs, points: Ints, side: int) -> Floats:
    """How many images are in the sum, and a triangle of their :func:`patch_moments` together.

    Parameters
    ----------
    points : rows of ``stored``, images ``(n, h, w, channels)``; of many some, at equal distances.

    Returns
    -------
    ``(1 + d (d + 1) / 2,)``, d = channels · side².
    """
    chosen = points[:: max(1, -(-len(points) // MOST_IMAGES))]
    total = np.zeros((stored.shape[-1] * side**2,) * 2)
    for start in range(0, len(chosen), _AT_ONCE):
        images = to_input(gather(stored, chosen[start : start + _AT_ONCE]))
        total += patch_moments(images, side)
    return np.concatenate([[len(chosen)], triangle(total)])


def moments_of(sums: Floats, most: float) -> Floats:
    """``(d, d)``, M of sums as of :func:`patch_sums` over at most so many images.

    Raises
    ------
    BadMessageError
        If no images have them.
    """
    count, size = float(sums[0]), math.isqrt(2 * len(sums) - 2)  # 1 + d (d + 1) / 2 numbers
    if not (np.isfinite(sums).all() and 0 < count <= most + 1e-6):
        raise BadMessageError("its sums of patches are of no images of it", "message-contradicts")
    moments = symmetric(sums[1:] / count, size)
    if not are_moments(moments):
        raise BadMessageError("its sums of patches are those of none", "message-out-of-range")
    return moments


def patch_moments(images: Tensor, side: int) -> Floats:
    """``(d, d)``: p pᵀ, its mean over patches of an image, summed over ``(n, channels, h, w)``."""
    stride = max(1, (min(images.shape[2:]) - side) // MOST_STEPS)
    patches = functional.unfold(images.double(), side, stride=stride)
    patches = patches - patches.mean(dim=1, keepdim=True)
    patches /= (patches.square().mean(dim=1, keepdim=True) + CONTRAST).sqrt()
    rows = patches.transpose(1, 2).flatten(0, 1)
    return np.asarray((rows.T @ rows / patches.shape[2]).numpy())


def are_moments(moments: NDArray[np.floating]) -> bool:
    """Whether patches can have these ``(d, d)`` second moments.

    A patch of d numbers has mean 0 and variance below 1, so they are positive semidefinite of a
    trace of d at most. With that, whoever makes them up can hardly choose filters: the longest axis
    of whitening is at most √(1 + d / 10) times the shortest.
    """
    size, slack = len(moments), 1e-3
    if not (np.isfinite(moments).all() and np.allclose(moments, moments.T, atol=1e-5)):
        return False
    values = np.linalg.eigvalsh(np.asarray(moments, np.float64))
    return bool(values[0] > -slack and values.sum() <= size + slack)


def fitted(directions: NDArray[np.floating], moments: NDArray[np.floating]) -> Floats:
    """Filters of these directions, whitened: w = (M + 10)^-1/2 v; shape of ``directions``."""
    values, vectors = np.linalg.eigh(np.asarray(moments, np.float64))
    roots = (vectors / np.sqrt(np.maximum(values, 0) + RIDGE)) @ vectors.T
    return np.asarray(directions.reshape(len(directions), -1) @ roots).reshape(directions.shape)


def names_in(arrays: Arrays) -> tuple[str, str] | None:
    """Names of filters and moments among a model's arrays, if it has them."""
    name = next((one for one in arrays if one.endswith(f".{MOMENTS}")), None)
    return None if name is None else (f"{name.removesuffix(MOMENTS)}{FILTERS}", name)


def with_moments(untrained: Arrays, moments: NDArray[np.floating]) -> Arrays:
    """A model's ``untrained`` arrays, drawn from the seed, with filters of these moments."""
    names = names_in(untrained)
    assert names is not None
    filters = fitted(untrained[names[0]].astype(np.float64), moments)
    kind = untrained[names[0]].dtype
    return {**untrained, names[0]: filters.astype(kind), names[1]: moments.astype(kind)}
