"""Strong augmentation of whole batches, for strong views in consistency losses."""

from __future__ import annotations

import torch
from torch import Tensor

from fedul_flwr.learning.affine import rotations, shears, warp

ROTATION = 30.0
"""Largest rotation either way, degrees."""
SHIFT = 0.125
"""Largest translation either way along each axis, as a share of the image's side."""
SCALE = 0.2
"""Largest change of scale: factors lie in [1 − SCALE, 1 + SCALE]."""
SHEAR = 0.2
"""Largest horizontal shear either way, pixels per pixel."""
CONTRAST = 0.4
"""Largest change of contrast and of brightness: factors lie in [1 − CONTRAST, 1 + CONTRAST]."""
CUTOUT = 0.4
"""Largest side of the square that is blacked out, as a share of the image's shorter side."""


def strong_augment(inputs: Tensor) -> Tensor:
    """Apply a random affine map, contrast, brightness and cutout to every image.

    Changes like RandAugment's (Cubuk et al. 2020) as a few tensor operations on the whole batch.
    Images are not mirrored: that changes some classes (digits), and for the others the weak view
    does it. Random numbers come from torch's own generator.

    Parameters
    ----------
    inputs : ``(n, c, h, w)`` in [-1, 1]; black is -1, also for pixels from outside the image.

    Returns
    -------
    New images of the same shape and range.
    """
    warped = warp(inputs + 1, *_affine_maps(inputs))  # the range -1 to 1 becomes 0 to 2
    values = _recolour(warped / 2)
    return (values * _outside_cutout(inputs)).mul_(2).sub_(1)


def _uniform(inputs: Tensor, least: float, most: float) -> Tensor:
    drawn = torch.rand(len(inputs), dtype=inputs.dtype, device=inputs.device)
    return least + (most - least) * drawn


def _affine_maps(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices ``(n, 2, 2)`` and shifts ``(n, 2)``: see :func:`fedul_flwr.learning.affine.warp`."""
    turns = rotations(_uniform(inputs, -ROTATION, ROTATION))
    shear = _uniform(inputs, -SHEAR, SHEAR)
    size = 1 / _uniform(inputs, 1 - SCALE, 1 + SCALE)
    shifts = torch.stack([_uniform(inputs, -SHIFT, SHIFT) for _ in range(2)], dim=1)
    return size[:, None, None] * (turns @ shears(shear, torch.zeros_like(shear))), shifts


def _recolour(values: Tensor) -> Tensor:
    """Contrast about the image's mean, then brightness, of values in [0, 1]."""
    contrast, brightness = (
        _uniform(values, 1 - CONTRAST, 1 + CONTRAST).view(-1, 1, 1, 1) for _ in range(2)
    )
    mean = values.mean(dim=(1, 2, 3), keepdim=True)
    return ((mean + (values - mean) * contrast) * brightness).clamp(0, 1)


def _outside_cutout(inputs: Tensor) -> Tensor:
    """``(n, 1, h, w)``: 0 inside a square around a random position, 1 elsewhere."""
    height, width = inputs.shape[2:]
    half = _uniform(inputs, 0, CUTOUT).view(-1, 1, 1) * (min(height, width) / 2)
    place = torch.arange(max(height, width), device=inputs.device).to(inputs.dtype) + 0.5
    rows = (place[None, :height, None] - _uniform(inputs, 0, height).view(-1, 1, 1)).abs() < half
    columns = (place[None, None, :width] - _uniform(inputs, 0, width).view(-1, 1, 1)).abs() < half
    return (~(rows & columns)).to(inputs.dtype)[:, None]
