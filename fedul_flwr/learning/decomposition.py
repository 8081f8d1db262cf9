"""Weights as a sum theta = sigma + psi, by name (FedMatch, section 3.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.data.types import Arrays

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
    return {f"{part}/{name}": array for part, own in parts.items() for name, array in own.items()}


def unflatten(arrays: Mapping[str, NDArray[Any]]) -> Parts:
    """Parts from the result of :func:`flatten`."""
    parts: Parts = {}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = array
    return parts


class Decomposed:
    """A model in training whose weights are the sum of its parts.

    The model's weights are always the sum, so d loss / d sigma = d loss / d psi = d loss / d theta:
    one backward pass gives the gradient of the part that is trained.

    Parameters
    ----------
    model : on its device; its weights and floating buffers are overwritten.
    parts : the parts that sum to its weights.
    """

    def __init__(self, model: nn.Module, parts: Parts) -> None:
        self.model = model
        self._weights = dict(model.named_parameters())
        self._buffers = {
            name: buffer
            for name, buffer in model.named_buffers()
            if name in parts[unlabeled_part(parts)]
        }
        with torch.no_grad():
            for name, buffer in self._buffers.items():
                buffer.copy_(_tensor(parts[unlabeled_part(parts)][name]))
            # Each like its weight, with the same memory format.
            self._parts = {
                part: {
                    name: nn.Parameter(torch.empty_like(weight).copy_(_tensor(arrays[name])))
                    for name, weight in self._weights.items()
                }
                for part, arrays in parts.items()
            }
        self.compose()

    def part(self, name: str) -> list[nn.Parameter]:
        """The tensors of a part, in the order of :attr:`weights`."""
        return list(self._parts[name].values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(self._parts)

    @property
    def weights(self) -> list[nn.Parameter]:
        """The model's own weights, which are the sum."""
        return list(self._weights.values())

    @torch.no_grad()
    def compose(self) -> None:
        """Set the model's weights to the sum of the current parts."""
        for name, weight in self._weights.items():
            first, *rest = (part[name] for part in self._parts.values())
            weight.copy_(torch.add(first, rest[0]) if rest else first)

    def dump(self) -> Parts:
        """The parts as new arrays."""
        dumped = {
            part: {name: _array(tensor) for name, tensor in tensors.items()}
            for part, tensors in self._parts.items()
        }
        statistics = {name: _array(buffer) for name, buffer in self._buffers.items()}
        dumped[unlabeled_part(dumped)] |= statistics
        return dumped


def _tensor(array: NDArray[Any]) -> Tensor:
    # Copy a read-only array, as torch warns about those.
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _array(tensor: Tensor) -> NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy(), order="C")
