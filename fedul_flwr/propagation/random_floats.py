"""Uniform and Gaussian numbers from raw random bits, the same on every platform."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Floats


def uniforms(raw: NDArray[np.uint64]) -> Floats:
    """Uniform numbers in [0, 1), multiples of 2^-53, one from each of ``raw``; same shape."""
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


def gaussians(raw: NDArray[np.uint64]) -> Floats:
    """Unit Gaussian numbers, one for each of ``raw`` (Box and Muller 1958).

    Parameters
    ----------
    raw : ``(n,)``, random bits; n must be even, as each pair gives two numbers.

    Returns
    -------
    float64 ``(n,)``, at most √(106 log 2) = 8.6 in absolute value.
    """
    uniform = uniforms(raw)
    radius = np.sqrt(-2 * np.log1p(-uniform[0::2]))
    angle = 2 * np.pi * uniform[1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
