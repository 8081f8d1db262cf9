"""A model in parts: sigma and psi (FedMatch, section 3.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays

SIGMA, PSI, THETA = "sigma", "psi", "theta"
"""Parts of a model's weights: trained on labeled points, trained on unlabeled points, and all
weights of a model without a decomposition."""

Parts = dict[str, Arrays]
"""Arrays of every part by their name in the model: sigma and psi, or only theta."""


def decompose(
    arrays: Mapping[str, NDArray[Any]],
    buffers: Collection[str],
    psi_factor: float | None,
    *,
    whole: bool = False,
) -> Parts:
    """Initial parts of a model.

    Parameters
    ----------
    arrays : its weights and buffers by name.
    buffers : names of buffers. Floating ones (batch-norm statistics) are not split: they belong to
        psi or theta, because most of the points that they describe are unlabeled. Counters belong
        to no part.
    psi_factor : psi as a multiple of sigma; ``None`` for theta only.
    whole : whether the sum of both equals ``arrays``, as for a trained model; else sigma does.
    """
    weights = {name: array for name, array in arrays.items() if name not in buffers}
    statistics = {
        name: array
        for name, array in arrays.items()
        if name in buffers and np.issubdtype(array.dtype, np.floating)
    }
    if psi_factor is None:
        return {THETA: weights | statistics}
    share = 1 / (1 + psi_factor) if whole else 1.0
    sigma = {name: np.asarray(share * array, array.dtype) for name, array in weights.items()}
    psi = {name: np.asarray(psi_factor * array, array.dtype) for name, array in sigma.items()}
    return {SIGMA: sigma, PSI: psi | statistics}


def unlabeled_part(parts: Collection[str]) -> str:
    """The part trained on unlabeled points: psi, or theta without a decomposition."""
    return PSI if PSI in parts else THETA


def compose(parts: Parts, used: str = "both", cutoff: float = 0.0) -> Arrays:
    """The model's arrays: theta = sigma + psi, and buffers.

    Parameters
    ----------
    used : ``"both"``, or only ``"sigma"`` or ``"psi"`` (figure 6b).
    cutoff : values of psi smaller than this in magnitude count as 0.
    """
    sigma, last = parts.get(SIGMA, {}), parts[unlabeled_part(parts)]
    composed = {}
    for name, array in last.items():
        if name not in sigma:
            composed[name] = array
            continue
        psi = np.where(np.abs(array) < cutoff, 0, array) if cutoff else array
        if used == PSI:
            composed[name] = np.asarray(psi, array.dtype)
        else:
            composed[name] = sigma[name] if used == SIGMA else np.asarray(sigma[name] + psi)
    return composed


def flatten(parts: Parts) -> Arrays:
    """All arrays in one dict, as ``PART/NAME``."""
    return {
        f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
    }


def unflatten(arrays: Mapping[str, NDArray[Any]]) -> Parts:
    """Parts from the result of :func:`flatten`."""
    parts: Parts = {}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = array
    return parts
