"""Affine maps of whole batches of images, one map per image."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


def warp(
    images: Tensor,
    matrices: Tensor,
    shifts: Tensor,
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Tensor:
    """Apply an affine map to each image: a pixel gets the value at the position it is mapped to.

    Parameters
    ----------
    images : ``(n, c, h, w)``; values from outside the image are 0.
    matrices : ``(n, 2, 2)``, for positions (right, down) relative to the center, in pixels.
    shifts : ``(n, 2)``, right and down, as shares of the image's sides; added after the matrix.
    mode : interpolation between pixels.

    Returns
    -------
    New images of the same shape.
    """
    height, width = images.shape[2:]
    # affine_grid's coordinates run from -1 to 1 along both sides of an image: the ratios prevent
    # a rotation from shearing an image that is not square.
    ratios = matrices.new_tensor([[1, height / width], [width / height, 1]])
    maps = torch.cat([matrices * ratios, 2 * shifts[:, :, None]], dim=2)
    # As functional.affine_grid, whose product for every single image takes longer than the rest;
    # value by value, so that an image does not depend on how many others there are.
    across, down = _centers(width, maps), _centers(height, maps)
    rows = torch.addcmul(maps[:, None, :, 2], maps[:, None, :, 1], down[None, :, None])
    grid = torch.addcmul(rows[:, :, None], maps[:, None, None, :, 0], across[None, None, :, None])
    return functional.grid_sample(images, grid, mode=mode, align_corners=False)


def _centers(count: int, like: Tensor) -> Tensor:
    """``(count,)``, centers of pixels along a side that runs from -1 to 1."""
    return (2 * torch.arange(count, dtype=like.dtype, device=like.device) + 1 - count) / count


def rotations(angles: Tensor) -> Tensor:
    """``(n, 2, 2)`` matrices rotating images counter-clockwise by ``angles`` ``(n,)`` degrees."""
    radians = torch.deg2rad(angles)
    cos, sin = radians.cos(), radians.sin()
    return torch.stack([cos, -sin, sin, cos], dim=1).view(-1, 2, 2)


def shears(across: Tensor, down: Tensor) -> Tensor:
    """``(n, 2, 2)``: shift ``across`` to the right per pixel down, ``down`` per pixel right."""
    one = torch.ones_like(across)
    return torch.stack([one, across, down, one], dim=1).view(-1, 2, 2)
