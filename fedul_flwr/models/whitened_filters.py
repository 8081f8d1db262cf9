"""Filters that fit the images of all clients, made of one sum over small patches of them.

Random filters answer most to what all images share: smooth patches. Here they are random directions
in the space in which patches vary alike everywhere (:mod:`fedul_flwr.learning.filters`).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.parts import GRID, LEAST

DIRECTIONS = 50
"""Filters, each with both signs: 900 features in cells of 3 x 3."""
SIDE, LEAST_SIDE = 5, 3
"""Pixels of a patch's side; of images below 16 pixels the smaller."""
CONTRAST: Final = 0.01
"""Added to a patch's variance before it is divided by its deviation: noise stays small."""
THRESHOLD: Final = 0.25
"""What answers lose before those below 0 become 0."""
FILTERS, MOMENTS = "filters", "moments"
"""Ends of the names of its arrays."""


class WhitenedFilters(nn.Module):
    """Roots of mean answers max(0, ± w · p - 0.25) of filters w in each cell of a grid.

    A patch p has mean 0 and its deviation divided out. Without moments filters are the directions.

    Attributes
    ----------
    filters : ``(DIRECTIONS, channels, side, side)``.
    moments : ``(d, d)``, d = channels · side², the mean of p pᵀ over all clients' patches that the
        filters are of; zeros before.
    """

    filters: Tensor
    moments: Tensor

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        size = channels * side**2
        directions = torch.randn(DIRECTIONS, size)
        directions /= directions.norm(dim=1, keepdim=True)
        self.register_buffer(FILTERS, directions.reshape(DIRECTIONS, channels, side, side))
        self.register_buffer(MOMENTS, torch.zeros(size, size))

    def forward(self, images: Tensor) -> Tensor:
        """``(n, 2 · DIRECTIONS · GRID²)`` of images ``(n, channels, h, w)`` in [-1, 1]."""
        side = self.filters.shape[2]
        mean = functional.avg_pool2d(images.mean(1, keepdim=True), side, 1)
        square = functional.avg_pool2d((images * images).mean(1, keepdim=True), side, 1)
        variance = (square - mean * mean).clamp(min=0) + CONTRAST
        # A filter of mean 0 answers to a patch as to the patch less its mean.
        of_patches = self.filters - self.filters.mean(dim=(1, 2, 3), keepdim=True)
        answers = functional.conv2d(images, of_patches).mul_(variance.rsqrt_())
        cells = [
            functional.adaptive_avg_pool2d(above.relu_(), GRID)
            for above in (answers - THRESHOLD, answers.neg_().sub_(THRESHOLD))
        ]
        return (torch.cat(cells, dim=1).flatten(1) + LEAST).sqrt()


def whitened_filters(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Filters from sums for images, and a linear layer."""
    height, width, channels = input_shape
    smaller = min(height, width)
    side = min(SIDE if smaller >= 16 else LEAST_SIDE, smaller)
    return nn.Sequential(
        WhitenedFilters(channels, side), nn.Linear(2 * DIRECTIONS * GRID**2, num_classes)
    )
