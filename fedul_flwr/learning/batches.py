"""From memory-mapped uint8 images to input batches, as tensors throughout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul_flwr.learning.augment import augment_batch


def to_input(images: Tensor) -> Tensor:
    """uint8 ``(n, h, w, c)`` to float32 ``(n, c, h, w)`` in [-1, 1], channels last in memory.

    The constants are fixed: a mean over all clients' pixels is something no client has.
    """
    # Permuting costs nothing: the bytes already lie channel after channel within a pixel.
    return images.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def gather(images: NDArray[np.uint8], rows: NDArray[np.int64]) -> Tensor:
    """Rows of a memory-mapped array as a uint8 tensor ``(len(rows), h, w, c)``."""
    return torch.from_numpy(images[rows])


def epoch_order(
    num_points: int, batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Positions of one epoch's batches, shuffled.

    The last incomplete batch is dropped, but there is at least one batch; ``batch_size`` 0 takes
    all points at once.
    """
    order = rng.permutation(num_points)
    if batch_size == 0 or batch_size >= num_points:
        return [order]
    full = num_points // batch_size
    return list(order[: full * batch_size].reshape(full, batch_size))


def training_batches(
    images: NDArray[np.uint8],
    points: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    batch_size: int,
    augment: str,
    rng: np.random.Generator,
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of ``(inputs, targets)``: float32 ``(b, c, h, w)`` and int64 ``(b,)``.

    Parameters
    ----------
    images : uint8 ``(N, h, w, c)``.
    points : ``(n,)``, rows of ``images`` to train on.
    targets : ``(n,)``, a target for each of ``points``.
    augment : ``"none"``, ``"rotate"`` or ``"flip"``.
    rng : source of order and augmentation.
    """
    for batch in epoch_order(len(points), batch_size, rng):
        inputs = to_input(gather(images, points[batch]))
        yield augment_batch(inputs, augment, rng), torch.from_numpy(targets[batch])


def evaluation_batches(
    images: NDArray[np.uint8], points: NDArray[np.int64], batch_size: int = 512
) -> Iterator[Tensor]:
    """All ``points`` in order, as inputs."""
    for start in range(0, len(points), batch_size):
        yield to_input(gather(images, points[start : start + batch_size]))
