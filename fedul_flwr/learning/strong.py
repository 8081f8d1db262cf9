"""Strong augmentation of whole batches, for strong views in consistency losses.

Images are ``(n, c, h, w)`` of levels in [0, 255], as floating point, and so are all results except
:func:`gray`'s. No function changes its argument.
Functions that count or compare levels round them to integers, as in an 8-bit image; the others do
not round. Factors are ``(n,)``, at least 0; 1 does not change the image.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedul_flwr.learning.batches import rotations, shears, warp

LEVELS = 256
"""Levels of an 8-bit channel."""
LUMA = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in the brightness of a pixel (ITU-R BT.601)."""


def autocontrast(images: Tensor) -> Tensor:
    """Stretch every channel of every image to the range 0 to 255; constant ones do not change."""
    low = images.amin(dim=(2, 3), keepdim=True)
    extent = images.amax(dim=(2, 3), keepdim=True) - low
    stretched = (images - low) * ((LEVELS - 1) / extent)
    return torch.where(extent > 0, stretched.clamp_(0, LEVELS - 1), images)


def equalize(images: Tensor) -> Tensor:
    """Equalize the histogram of every channel of every image; constant ones do not change.

    A level becomes 255 times the fraction of pixels below it, among the pixels that do not have the
    brightest level, rounded. Pillow divides by an integer number of pixels per level, which turns
    up to a quarter of a 32 x 32 image white and does not change images below 255 pixels; if that
    division has no remainder, both results are equal.
    """
    channels = images.round().flatten(2).flatten(0, 1).long()  # (n·c, h·w)
    counts = torch.zeros(len(channels), LEVELS, dtype=torch.int64, device=images.device)
    counts.scatter_add_(1, channels, torch.ones_like(channels))
    below = counts.cumsum(dim=1) - counts
    others = below.gather(1, channels.amax(dim=1, keepdim=True))
    spread = (2 * (LEVELS - 1) * below + others) // (2 * others).clamp(min=1)
    spread = torch.where(others > 0, spread, torch.arange(LEVELS, device=images.device))
    return spread.to(images.dtype).gather(1, channels).view_as(images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest ``bits`` ``(n,)``, integers 1 to 8, of every level."""
    step = _per_image(2 ** (8 - bits))
    return (images.round() / step).floor() * step


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Invert levels at or above their image's threshold, ``(n,)`` in [0, 256]; with 256 none."""
    levels = images.round()
    return torch.where(levels < _per_image(thresholds), levels, LEVELS - 1 - levels)


def saturate(images: Tensor, factors: Tensor) -> Tensor:
    """Change the saturation; factor 0 gives gray. Only images of three channels change."""
    return _blend(gray(images), images, factors) if images.shape[1] == 3 else images


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Change the contrast; factor 0 gives a constant image of the same mean brightness."""
    return _blend(gray(images).mean(dim=(1, 2, 3), keepdim=True), images, factors)


def brighten(images: Tensor, factors: Tensor) -> Tensor:
    """Change the brightness; factor 0 gives black."""
    return (images * _per_image(factors)).clamp_(0, LEVELS - 1)


def sharpen(images: Tensor, factors: Tensor) -> Tensor:
    """Change the sharpness; factor 0 gives the mean of 3 x 3 pixels, the middle one five times.

    The outermost pixels do not change.
    """
    smooth = images.clone()
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
    inner = images[:, :, 1:-1, 1:-1]
    smooth[:, :, 1:-1, 1:-1] = (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * inner) / 13
    return _blend(smooth, images, factors)


def gray(images: Tensor) -> Tensor:
    """``(n, 1, h, w)``: brightness of RGB images; for others the mean of the channels."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def _blend(without: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(without, images, _per_image(factors)).clamp_(0, LEVELS - 1)


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


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
    values = _recolor(warped / 2)
    return (values * _outside_cutout(inputs)).mul_(2).sub_(1)


def _uniform(inputs: Tensor, least: float, most: float) -> Tensor:
    drawn = torch.rand(len(inputs), dtype=inputs.dtype, device=inputs.device)
    return least + (most - least) * drawn


def _affine_maps(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices ``(n, 2, 2)`` and shifts ``(n, 2)`` of ``augment.warp``."""
    turns = rotations(_uniform(inputs, -ROTATION, ROTATION))
    shear = _uniform(inputs, -SHEAR, SHEAR)
    size = 1 / _uniform(inputs, 1 - SCALE, 1 + SCALE)
    shifts = torch.stack([_uniform(inputs, -SHIFT, SHIFT) for _ in range(2)], dim=1)
    return size[:, None, None] * (turns @ shears(shear, torch.zeros_like(shear))), shifts


def _recolor(values: Tensor) -> Tensor:
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
    centers = torch.arange(max(height, width), device=inputs.device).to(inputs.dtype) + 0.5
    row, column = (_uniform(inputs, 0, side).view(-1, 1, 1) for side in (height, width))
    rows = (centers[None, :height, None] - row).abs() < half
    columns = (centers[None, None, :width] - column).abs() < half
    return (~(rows & columns)).to(inputs.dtype)[:, None]
