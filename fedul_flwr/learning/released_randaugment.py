"""RandAugment as in FedMatch's released code: other draws and other strengths."""

from __future__ import annotations

import torch
from torch import Tensor

from fedul_flwr.learning import strong
from fedul_flwr.learning.batches import rotations, shears, warp
from fedul_flwr.learning.randaugment import Change, change_some

GREATEST_BOUND = 10
"""Number of strengths, and largest bound: strength i of 0 to 9 is i/9 of the largest one."""
BITS = 4
"""Largest number of the 8 bits of a level that posterizing removes."""
DARKEST = 256 - 231
"""Largest change of solarizing's threshold, from 256."""
COLOR, CONTRAST, BRIGHTNESS, SHARPNESS = 0.9, 0.5, 0.3, 0.9
"""Largest changes of the factors: factors are 1 ± these values."""
ROTATION = 360.0
"""Largest rotation, only counter-clockwise, degrees."""
SHEAR = 0.3
"""Largest shear either way, pixels per pixel, about the upper left corner of the image."""
SHIFT = 0.2
"""Largest translation either way, as a share of the image's side."""
GRAY = 128.0
"""Level of pixels from outside the image in a rotation; for other operations they are black."""

_COLORS: dict[str, Change] = {
    "autocontrast": lambda images, _: strong.autocontrast(images),
    "equalize": lambda images, _: images,
    "posterize": lambda images, by: strong.posterize(images, (8 - BITS * by.abs()).round()),
    "solarize": lambda images, by: strong.solarize(images, strong.LEVELS - DARKEST * by.abs()),
    "color": lambda images, by: strong.saturate(images, 1 + COLOR * by),
    "contrast": lambda images, by: strong.contrast(images, 1 + CONTRAST * by),
    "brightness": lambda images, by: strong.brighten(images, 1 + BRIGHTNESS * by),
    "sharpness": lambda images, by: strong.sharpen(images, 1 + SHARPNESS * by),
}
"""Changes of ``(m, c, h, w)`` levels by ``(m,)`` strengths. In that code equalization does
nothing."""
OPERATIONS = (*_COLORS, "rotate", "shear-x", "shear-y", "translate-x", "translate-y")
"""Operations by number."""
_ROTATE = len(_COLORS)


def released_randaugment(
    inputs: Tensor, num_operations: int = 6, bounds: tuple[int, int] = (2, 5)
) -> Tensor:
    """Apply operations drawn with repetition to every image, in the order of drawing.

    A bound is drawn for every image, and for each of its operations a strength from 0 to below that
    bound. With bounds of 2 to 5 the mean strength is 1.25, and 32 % are 0, which changes
    nothing but for autocontrast. Except for rotations of up to 160 degrees it changes images less
    than :func:`~fedul_flwr.learning.randaugment.randaugment` (Jeong et al. 2021, released code).

    The released code rounds to integer levels after every operation, and geometric ones use nearest
    or cubic interpolation; here nothing is rounded, and all interpolate linearly. Random numbers
    come from torch's own generator.

    Parameters
    ----------
    inputs : ``(n, c, h, w)`` in [-1, 1]; black is -1.
    num_operations : number of operations per image, at least 1.
    bounds : smallest and largest bound, from 1 to 10.

    Returns
    -------
    New images of the same shape and range.
    """
    drawn, strengths = _draw(inputs, num_operations, *bounds)
    half = (strong.LEVELS - 1) / 2
    images = (inputs + 1).mul_(half)
    for operations, by in zip(drawn.unbind(1), strengths.unbind(1), strict=True):
        for number, change in enumerate(_COLORS.values()):
            images = change_some(images, operations == number, change, by)
        images = change_some(images, operations >= _ROTATE, _move, operations, by)
    return images.div_(half).sub_(1).clamp_(-1, 1)


def _draw(inputs: Tensor, num_operations: int, least: int, greatest: int) -> tuple[Tensor, Tensor]:
    """Numbers of operations, int64 ``(n, num_operations)``, and as many strengths in [-1, 1]."""
    shape, device = (len(inputs), num_operations), inputs.device
    operations = torch.randint(0, len(OPERATIONS), shape, device=device)
    bounds = torch.randint(least, greatest + 1, (len(inputs), 1), device=device)
    # All bounds divide 2520, so that the remainder is uniform.
    numbers = torch.randint(0, 2520, shape, device=device) % bounds
    directions = 2 * torch.randint(0, 2, shape, device=device) - 1
    return operations, (numbers * directions).to(inputs.dtype) / (GREATEST_BOUND - 1)


def _move(images: Tensor, operations: Tensor, strengths: Tensor) -> Tensor:
    """Levels of images ``(m, c, h, w)`` after a geometric operation on each."""
    height, width = images.shape[2:]
    turn, across, down, right, below = (
        strengths * (operations == number) for number in range(_ROTATE, len(OPERATIONS))
    )
    matrices = rotations(ROTATION * turn.abs()) @ shears(SHEAR * across, SHEAR * down)
    # The map is relative to the center: shift it so that the corner stays in place.
    corner = SHEAR / 2 * torch.stack([across * height / width, down * width / height], dim=1)
    shifts = SHIFT * torch.stack([right, below], dim=1) + corner
    outside = (GRAY * (operations == _ROTATE)).to(images.dtype).view(-1, 1, 1, 1)
    return warp(images - outside, matrices, shifts).add_(outside)
