"""Changes of tone and color of whole batches, after Pillow's operations of the same names.

Images are ``(n, c, h, w)`` of levels in [0, 255], as floating point, and so is every result, but
for :func:`grey`'s; nothing changes its argument.
Changes that count or compare levels take the nearest whole ones, as an 8-bit image has; the others
do not round. Factors are ``(n,)``, at least 0, and 1 is the image itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 256
"""Levels of an 8-bit channel."""
LUMA = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in the brightness of a pixel (ITU-R BT.601)."""


def autocontrast(images: Tensor) -> Tensor:
    """Stretch every channel of every image to reach from 0 to 255; flat ones stay."""
    low = images.amin(dim=(2, 3), keepdim=True)
    extent = images.amax(dim=(2, 3), keepdim=True) - low
    stretched = (images - low) * ((LEVELS - 1) / extent)
    return torch.where(extent > 0, stretched.clamp_(0, LEVELS - 1), images)


def equalize(images: Tensor) -> Tensor:
    """Spread the levels of every channel of every image evenly over 0 to 255; flat ones stay.

    A level becomes 255 times the share of pixels below it, among those that are not of the
    brightest level there is, rounded. Pillow divides by a whole number of pixels per level, which
    whitens up to a quarter of a 32 x 32 image and leaves images below 255 pixels alone; where that
    division leaves no remainder both are the same.
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
    """Keep the highest ``bits`` ``(n,)``, whole numbers 1 to 8, of every level."""
    step = _per_image(2 ** (8 - bits))
    return (images.round() / step).floor() * step


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Invert the levels that reach their image's threshold, ``(n,)`` in [0, 256]; at 256 none."""
    levels = images.round()
    return torch.where(levels < _per_image(thresholds), levels, LEVELS - 1 - levels)


def saturate(images: Tensor, factors: Tensor) -> Tensor:
    """Factor 0 is the image in gray. Images of other than three channels are gray already."""
    return _blend(grey(images), images, factors) if images.shape[1] == 3 else images


def contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Factor 0 is flat, as bright as the image is on average."""
    return _blend(grey(images).mean(dim=(1, 2, 3), keepdim=True), images, factors)


def brighten(images: Tensor, factors: Tensor) -> Tensor:
    """Factor 0 is black."""
    return (images * _per_image(factors)).clamp_(0, LEVELS - 1)


def sharpen(images: Tensor, factors: Tensor) -> Tensor:
    """Factor 0 is the image smoothed: the mean of 3 x 3 pixels, the middle one counting five times.

    The outermost pixels stay.
    """
    smooth = images.clone()
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
    inner = images[:, :, 1:-1, 1:-1]
    smooth[:, :, 1:-1, 1:-1] = (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * inner) / 13
    return _blend(smooth, images, factors)


def grey(images: Tensor) -> Tensor:
    """``(n, 1, h, w)``: brightness of RGB images; of others the mean of the channels."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def _blend(without: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(without, images, _per_image(factors)).clamp_(0, LEVELS - 1)


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
