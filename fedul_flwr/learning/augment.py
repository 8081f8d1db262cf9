"""Random views of whole batches, by tensor operations instead of one point at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.config.references import load_reference, user_code
from fedul_flwr.errors import UserError
from fedul_flwr.learning.plan import LocalPlan


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


def augment_by_reference(inputs: Tensor, reference: str, rng: np.random.Generator) -> Tensor:
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
    with user_code(what):
        outputs = function(inputs, rng)
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"{what} returned {type(outputs).__name__}; needed is a tensor.", "own-code-result"
        )
    if (tuple(outputs.shape), outputs.dtype) != (shape, kind):
        raise UserError(
            f"{what} returned {tuple(outputs.shape)} of {outputs.dtype} for a batch of {shape} of "
            f"{kind}: shape and type must stay.",
            "own-code-result",
        )
    return outputs


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


def augment_vectors(inputs: Tensor, plan: LocalPlan, rng: np.random.Generator) -> Tensor:
    """Augment ``(n, d)`` inputs as ``plan.augment`` says, or not at all."""
    if plan.augment == "noise":
        drawn = torch.from_numpy(rng.standard_normal(tuple(inputs.shape)))
        return inputs + plan.noise * drawn.to(inputs.dtype)
    if plan.augment == "dropout":
        is_used = torch.from_numpy(rng.random(tuple(inputs.shape)) >= plan.feature_dropout)
        return inputs * is_used
    if plan.augment == "mixup":
        shares = plan.mixup * torch.from_numpy(rng.random(len(inputs)))
        return mixed(inputs, torch.from_numpy(rng.permutation(len(inputs))), shares)
    return inputs


def mixed(inputs: Tensor, others: Tensor, shares: Tensor) -> Tensor:
    """(1 − s_i)·x_i + s_i·x_{o_i}: every vector with a share of another one (Verma et al. 2021).

    The vector keeps its own label or target, unlike in mixup of points with their labels.

    Parameters
    ----------
    inputs : ``(n, d)``.
    others : int64 ``(n,)``, o, rows of ``inputs``.
    shares : ``(n,)``, s, between 0 and 1/2.

    Examples
    --------
    >>> points, others = torch.tensor([[0.0], [8.0]]), torch.tensor([1, 0])
    >>> mixed(points, others, torch.tensor([0.25, 0.0])).tolist()
    [[2.0], [8.0]]
    """
    return torch.lerp(inputs, inputs[others], shares.to(inputs.dtype)[:, None])


def strong_vectors(
    noise: float, feature_dropout: float, mixup: float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Makes a strong view of each vector ``(n, d)``: mixup, then noise, then features set to 0.

    Random numbers come from torch's own generator. Features that stay are not scaled up: a feature
    at 0 has its mean, if columns are standardized. Without ``mixup`` nothing is drawn for it.
    """

    def view(inputs: Tensor) -> Tensor:
        if mixup:
            others = torch.randperm(len(inputs), device=inputs.device)
            inputs = mixed(inputs, others, mixup * torch.rand(len(inputs), device=inputs.device))
        noisy = inputs + noise * torch.randn_like(inputs)
        return noisy * (torch.rand_like(inputs) >= feature_dropout)

    return view
