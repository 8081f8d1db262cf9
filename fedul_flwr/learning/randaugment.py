"""RandAugment (Cubuk et al. 2020) of whole batches, for strong views in consistency losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedul_flwr.learning import strong
from fedul_flwr.learning.batches import rotations, shears, warp
from fedul_flwr.learning.lanes import fixed_shapes

GREATEST_MAGNITUDE = 10
"""Largest magnitude, an integer; it gives the strengths below."""
BITS = 4
"""Largest number of the 8 bits of a level that posterizing removes."""
ENHANCEMENT = 0.9
"""Largest change of color, contrast, brightness and sharpness: factors 1 ± ENHANCEMENT."""
ROTATION = 30.0
"""Largest rotation either way, degrees."""
SHEAR = 0.3
"""Largest shear either way, pixels per pixel."""
SHIFT = 150 / 331
"""Largest translation either way, as a share of the image's side."""

Change = Callable[..., Tensor]
"""``(images (m, c, h, w), values (m,), …) -> images``."""
_COLORS: dict[str, Change] = {
    "autocontrast": lambda images, _: strong.autocontrast(images),
    "equalize": lambda images, _: strong.equalize(images),
    "posterize": lambda images, by: strong.posterize(images, 8 - (BITS * by.abs()).round()),
    "solarize": lambda images, by: strong.solarize(images, strong.LEVELS * (1 - by.abs())),
    "color": lambda images, by: strong.saturate(images, 1 + ENHANCEMENT * by),
    "contrast": lambda images, by: strong.contrast(images, 1 + ENHANCEMENT * by),
    "brightness": lambda images, by: strong.brighten(images, 1 + ENHANCEMENT * by),
    "sharpness": lambda images, by: strong.sharpen(images, 1 + ENHANCEMENT * by),
}
"""Changes of ``(m, c, h, w)`` levels by ``(m,)`` strengths, in the order of their application."""
_GEOMETRY = ("rotate", "shear-x", "shear-y", "translate-x", "translate-y")
OPERATIONS = (*_COLORS, *_GEOMETRY)
"""The paper's operations except the identity."""


def randaugment(
    inputs: Tensor, num_operations: int = 6, magnitudes: tuple[int, int] = (2, 5)
) -> Tensor:
    """Apply randomly drawn operations with random magnitudes to every image.

    The paper applies operations in the order in which they are drawn. Here the order is always that
    of :data:`OPERATIONS`, for speed: an operation changes all images that drew it at once, and
    geometric ones form one affine map, which resamples an image only once. Autocontrast and
    equalization come first, as they would undo contrast and brightness. Random numbers come from
    torch's own generator.

    FedMatch's code uses other draws and strengths:
    :func:`~fedul_flwr.learning.released_randaugment.released_randaugment`.

    Parameters
    ----------
    inputs : ``(n, c, h, w)`` in [-1, 1]; black is -1, also for pixels from outside the image.
    num_operations : number of distinct operations, out of 13, per image.
    magnitudes : smallest and largest; each operation's magnitude is a random integer in this range,
        and its direction, if it has one, is random. 0 changes nothing, except for autocontrast and
        equalization, which have no magnitude.

    Returns
    -------
    New images of the same shape and range.
    """
    drawn, strengths = _draw(inputs, num_operations, *magnitudes)
    half = (strong.LEVELS - 1) / 2
    images = (inputs + 1).mul_(half)
    for k, change in enumerate(_COLORS.values()):
        images = change_some(images, drawn[:, k], change, strengths[:, k])
    geometry = (strengths * drawn)[:, len(_COLORS) :]
    return warp(images, *_affine_maps(*geometry.unbind(1))).div_(half).sub_(1).clamp_(-1, 1)


def change_some(images: Tensor, chosen: Tensor, change: Change, *values: Tensor) -> Tensor:
    """``images`` with the ``chosen`` ones (bool ``(n,)``) changed by their ``values`` ``(n,)``."""
    if fixed_shapes(images):
        return torch.where(chosen[:, None, None, None], change(images, *values), images)
    rows = chosen.nonzero().squeeze(1)
    if len(rows):
        images[rows] = change(images[rows], *(value[rows] for value in values))
    return images


def _draw(inputs: Tensor, num_operations: int, least: int, greatest: int) -> tuple[Tensor, Tensor]:
    """Operations of every image, bool ``(n, 13)``, and strengths ``(n, 13)`` in [-1, 1]."""
    shape, device = (len(inputs), len(OPERATIONS)), inputs.device
    # argsort of random numbers is a random order of 0 … 12.
    drawn = torch.rand(shape, device=device).argsort(dim=1) < num_operations
    magnitudes = torch.randint(least, greatest + 1, shape, device=device)
    directions = 2 * torch.randint(0, 2, shape, device=device) - 1
    return drawn, (magnitudes * directions).to(inputs.dtype) / GREATEST_MAGNITUDE


def _affine_maps(
    turn: Tensor, across: Tensor, down: Tensor, right: Tensor, below: Tensor
) -> tuple[Tensor, Tensor]:
    """Matrices and shifts, as :func:`warp` takes them, of the geometric operations' strengths."""
    matrices = rotations(ROTATION * turn) @ shears(SHEAR * across, SHEAR * down)
    return matrices, SHIFT * torch.stack([right, below], dim=1)
