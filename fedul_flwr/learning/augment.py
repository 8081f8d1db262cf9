"""Augmentation of whole batches: one tensor operation instead of one image at a time."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

ROTATION_DEGREES = 20.0
"""Largest rotation either way (FedUL paper, MNIST)."""


def augment_batch(inputs: Tensor, name: str, rng: np.random.Generator) -> Tensor:
    """Augment ``(n, c, h, w)`` inputs in [-1, 1] by ``"none"``, ``"rotate"`` or ``"flip"``."""
    match name:
        case "rotate":
            degrees = rng.uniform(-ROTATION_DEGREES, ROTATION_DEGREES, len(inputs))
            return rotate(inputs, torch.from_numpy(degrees))
        case "flip":
            return flip(inputs, torch.from_numpy(rng.random(len(inputs)) < 0.5))
        case _:
            return inputs


def rotate(inputs: Tensor, degrees: Tensor) -> Tensor:
    """Rotate every image about its centre, counter-clockwise, by its own angle.

    Nearest pixel, as torchvision's default and so the authors' code: interpolation would blur
    what is trained on and not what is tested on. What comes from outside the image is black (-1).

    Parameters
    ----------
    inputs : ``(n, c, h, w)`` in [-1, 1].
    degrees : ``(n,)``.
    """
    angle = degrees.to(inputs.dtype) * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    height, width = inputs.shape[2:]
    zero = torch.zeros_like(cos)
    # affine_grid works in coordinates that run from -1 to 1 on either side, hence the ratios.
    matrix = torch.stack(
        [
            torch.stack([cos, -sin * (height / width), zero], dim=1),
            torch.stack([sin * (width / height), cos, zero], dim=1),
        ],
        dim=1,
    )
    shape = [len(inputs), inputs.shape[1], height, width]
    grid = functional.affine_grid(matrix, shape, align_corners=False)
    # Padding is with zeros: move black to zero for the sampling and back.
    turned = functional.grid_sample(inputs + 1, grid, mode="nearest", align_corners=False)
    return turned.sub_(1)


def flip(inputs: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the ``chosen`` (bool ``(n,)``) images left to right."""
    return torch.where(chosen[:, None, None, None], inputs.flip(3), inputs)
