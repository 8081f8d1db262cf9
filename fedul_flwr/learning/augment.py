"""Augmentation of whole batches by tensor operations instead of one image at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.config.references import load_reference, own_code
from fedul_flwr.errors import UserError
from fedul_flwr.learning.affine import rotations, warp

ROTATION_DEGREES = 20.0
"""Largest rotation either way (FedUL paper, MNIST)."""
SMALL_ROTATION_DEGREES = 10.0
"""Largest rotation either way before a flip (XCLP paper, Mini-ImageNet)."""
TRANSLATION_PIXELS = 4
"""Largest shift either way before a flip (XCLP paper, CIFAR)."""
AFFINE_DEGREES, AFFINE_SCALE, AFFINE_PIXELS = 15.0, 0.1, 2.0
"""Largest rotation, change of size and shift of ``affine`` (ours, for digits and the like)."""


def augment_batch(inputs: Tensor, name: str, rng: np.random.Generator) -> Tensor:
    """Augment ``(n, c, h, w)`` inputs in [-1, 1]; ``name`` is a value of setting ``augment``."""
    match name:
        case "rotate":
            return _rotate_randomly(inputs, ROTATION_DEGREES, rng)
        case "flip":
            return _flip_randomly(inputs, rng)
        case "translate-flip":
            most = TRANSLATION_PIXELS
            down, right = torch.from_numpy(rng.integers(-most, most + 1, (2, len(inputs))))
            return _flip_randomly(translate(inputs, down, right), rng)
        case "affine":
            return _change_randomly(inputs, rng)
        case "rotate-flip":
            return _flip_randomly(_rotate_randomly(inputs, SMALL_ROTATION_DEGREES, rng), rng)
        case _:
            return inputs


def own_augmented(inputs: Tensor, reference: str, rng: np.random.Generator) -> Tensor:
    """A batch as a function of the user's own augments it: ``function(inputs, rng)``.

    Parameters
    ----------
    inputs : images ``(n, c, h, w)`` in [-1, 1], or vectors ``(n, d)``.
    reference : ``package.module:function``.

    Raises
    ------
    UserError
        If the function fails, or returns no tensor of the same shape and type.
    """
    what = f"Setting augment = {reference!r}"
    function = load_reference(reference, "augment")
    shape, kind = tuple(inputs.shape), inputs.dtype
    with own_code(what):
        found = function(inputs, rng)
    if not isinstance(found, Tensor):
        raise UserError(f"{what} returned {type(found).__name__}; needed is a tensor.")
    if (tuple(found.shape), found.dtype) != (shape, kind):
        raise UserError(
            f"{what} returned {tuple(found.shape)} of {found.dtype} for a batch of {shape} of "
            f"{kind}: shape and type must stay."
        )
    return found


def _rotate_randomly(inputs: Tensor, most: float, rng: np.random.Generator) -> Tensor:
    return rotate(inputs, torch.from_numpy(rng.uniform(-most, most, len(inputs))))


def _change_randomly(inputs: Tensor, rng: np.random.Generator) -> Tensor:
    """Rotate, scale and shift every image at random, with a single resampling."""
    count = len(inputs)
    degrees = rng.uniform(-AFFINE_DEGREES, AFFINE_DEGREES, count)
    sizes = 1 + rng.uniform(-AFFINE_SCALE, AFFINE_SCALE, count)
    pixels = rng.uniform(-AFFINE_PIXELS, AFFINE_PIXELS, (count, 2))
    turns = rotations(torch.from_numpy(degrees).to(inputs.dtype))
    matrices = turns / torch.from_numpy(sizes).to(inputs.dtype)[:, None, None]
    shifts = torch.from_numpy(pixels).to(inputs.dtype) / torch.tensor(inputs.shape[:1:-1])
    return warp(inputs + 1, matrices, shifts, "nearest").sub_(1)


def _flip_randomly(inputs: Tensor, rng: np.random.Generator) -> Tensor:
    return flip(inputs, torch.from_numpy(rng.random(len(inputs)) < 0.5))


def rotate(inputs: Tensor, degrees: Tensor) -> Tensor:
    """Rotate every image about its center, counter-clockwise, by its own angle.

    Takes the nearest pixel, as torchvision by default and so the authors' code: interpolation would
    blur training images but not test images. Values from outside the image are black (-1).

    Parameters
    ----------
    inputs : ``(n, c, h, w)`` in [-1, 1].
    degrees : ``(n,)``.
    """
    matrices = rotations(degrees.to(inputs.dtype))
    return warp(inputs + 1, matrices, matrices.new_zeros(len(inputs), 2), "nearest").sub_(1)


def flip(inputs: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the ``chosen`` (bool ``(n,)``) images left to right."""
    return torch.where(chosen[:, None, None, None], inputs.flip(3), inputs)


def translate(inputs: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Shift every image by its own whole numbers of pixels, with a mirrored border.

    Values from outside are reflected about the outermost pixels, which are not repeated; for shifts
    larger than the image they are reflected several times.

    Parameters
    ----------
    inputs : ``(n, c, h, w)``.
    down, right : int64 ``(n,)``, negative for up and left.
    """
    rows = _reflected(inputs.shape[2], down)[:, :, None]
    columns = _reflected(inputs.shape[3], right)[:, None, :]
    images = torch.arange(len(inputs))[:, None, None]
    # Indexing on both sides of the channels puts these last: (n, h, w, c), as in memory.
    return inputs[images, :, rows, columns].permute(0, 3, 1, 2)


def _reflected(size: int, shift: Tensor) -> Tensor:
    """``(n, size)``: source position along an axis for every pixel."""
    period = max(2 * (size - 1), 1)  # there and back again
    position = (torch.arange(size) - shift[:, None]) % period
    return torch.minimum(position, period - position)
