"""Batches of inputs from memory-mapped images or vectors, and random views of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedul_flwr.config.base import load_reference, user_code
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Batch, Batches


def to_input(stored: Tensor) -> Tensor:
    """Points as a network takes them.

    Images, uint8 ``(n, h, w, c)``, become float32 ``(n, c, h, w)`` in [-1, 1], channels last in
    memory. The constants are fixed, because no client knows the mean over all clients' pixels.
    Vectors, float32 ``(n, d)``, do not change.

    Examples
    --------
    >>> black_and_white = torch.tensor([[[[0], [255]]]], dtype=torch.uint8)
    >>> to_input(black_and_white).tolist()
    [[[[-1.0, 1.0]]]]
    """
    if stored.dtype != torch.uint8:
        return stored
    # Permuting copies nothing: the bytes already have the channels last.
    return stored.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def gather(stored: Inputs, rows: NDArray[np.int64]) -> Tensor:
    """Rows of a memory-mapped array as a tensor, a copy of their own."""
    return torch.from_numpy(stored[rows])


def num_batches(num_points: int, batch_size: int) -> int:
    """Number of batches per epoch, at least 1; an incomplete last one is dropped, size 0 is 1."""
    return max(1, num_points // batch_size) if batch_size else 1


def epoch_order(
    num_points: int, batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Positions of one epoch's batches, shuffled.

    An incomplete last batch is dropped unless it is the only one; ``batch_size`` 0 puts all points
    into one batch.
    """
    order = rng.permutation(num_points)
    if batch_size == 0 or batch_size >= num_points:
        return [order]
    full = num_batches(num_points, batch_size)
    return list(order[: full * batch_size].reshape(full, batch_size))


def augmented(inputs: Tensor, plan: LocalPlan, rng: np.random.Generator) -> Tensor:
    """A view of each of ``inputs``, ``(n, c, h, w)`` or ``(n, d)``, as ``plan.augment`` says."""
    if ":" in plan.augment:
        return augment_by_reference(inputs, plan.augment, rng)
    if inputs.dim() == 4:
        return augment_batch(inputs, plan.augment, rng)
    return augment_vectors(inputs, plan, rng)


def point_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    targets: NDArray[np.int64],
    plan: LocalPlan,
) -> Batches:
    """Shuffled batches of ``plan.batch_size`` points, augmented by ``plan.augment``.

    Parameters
    ----------
    stored : the data, images or vectors.
    points : ``(n,)``, rows of ``stored`` to train on.
    targets : ``(n,)``, a target for each of ``points``.
    """

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        for batch in epoch_order(len(points), plan.batch_size, rng):
            inputs = to_input(gather(stored, points[batch]))
            yield Batch(augmented(inputs, plan, rng), torch.from_numpy(targets[batch]), len(batch))

    return Batches(len(points), batches)


def repeated_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    targets: NDArray[np.int64],
    plan: LocalPlan,
    count: int,
) -> Batches:
    """``count`` batches per epoch for any number of points; parameters as in `point_batches`.

    Points are shuffled again after every pass. A batch has ``plan.batch_size`` of them, or all if
    there are fewer.
    """

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        next_of = _endless(np.arange(len(points)), rng)
        for _ in range(count):
            batch = next_of(plan.batch_size or len(points))
            inputs = to_input(gather(stored, points[batch]))
            yield Batch(augmented(inputs, plan, rng), torch.from_numpy(targets[batch]), len(batch))

    return Batches(len(points), batches)


def set_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    sets: NDArray[np.int64],
    plan: LocalPlan,
) -> Batches:
    """Every unlabeled set as one batch, in random order; ``sets`` ``(n,)``: the set of each point.

    The targets of a batch are all equal to the index of its set.
    """
    members = {int(m): points[sets == m] for m in np.unique(sets)}

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        for m in rng.permutation(list(members)):
            inputs = to_input(gather(stored, members[int(m)]))
            targets = torch.full((len(inputs),), int(m), dtype=torch.int64)
            yield Batch(augmented(inputs, plan, rng), targets)

    return Batches(len(points), batches)


def bag_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    sets: NDArray[np.int64],
    plan: LocalPlan,
    bag_size: int,
) -> Batches:
    """Batches of bags: whole sets, and larger ones in random parts of at most ``bag_size`` points.

    A set of n points is cut anew in every epoch into the fewest parts, of sizes that differ by at
    most one. A batch has ``plan.batch_size`` divided by ``bag_size`` bags, rounded down, at least
    one; an incomplete last batch is dropped unless it is the only one.

    Parameters
    ----------
    sets : ``(n,)``, the set of each point.
    bag_size : at least 1.

    Returns
    -------
    Batches whose targets ``(b, 2)`` are each point's set, and its bag within the batch, from 0.
    """
    members = [points[sets == m] for m in np.unique(sets)]

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        bags = [
            (m, part)
            for m, of_set in zip(np.unique(sets), members, strict=True)
            for part in np.array_split(rng.permutation(of_set), -(-len(of_set) // bag_size))
        ]
        each = max(1, plan.batch_size // bag_size) if plan.batch_size else 0
        for batch in epoch_order(len(bags), each, rng):
            chosen = [bags[position] for position in batch]
            rows = np.concatenate([part for _, part in chosen])
            numbers = [(m, bag) for bag, (m, part) in enumerate(chosen) for _ in part]
            inputs = to_input(gather(stored, rows))
            yield Batch(augmented(inputs, plan, rng), torch.tensor(numbers))

    return Batches(len(points), batches)


def paired_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    num_labeled: int,
    plan: LocalPlan,
    views: int = 1,
    steps: int = 0,
) -> Batches:
    """Batches of labeled and as many unlabeled points; targets are positions in ``points``.

    An epoch is one pass over the unlabeled points, with labeled ones repeated; without unlabeled
    points it is one pass over the labeled ones.

    Parameters
    ----------
    stored : the data, images or vectors.
    points : ``(n,)``, rows of ``stored``, the labeled ones first.
    num_labeled : number of labeled points. A batch has ``plan.batch_size`` of them, or all if there
        are fewer.
    views : copies of the batch, augmented separately: inputs are ``(views · b, c, h, w)``.
    steps : number of batches of an epoch, in place of one pass.
    """
    labeled = np.arange(num_labeled)
    others = np.arange(num_labeled, len(points))
    of_each = min(plan.batch_size or len(points), num_labeled or len(points))

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        streams = [part for part in (others, labeled) if len(part)]
        orders = [_endless(part, rng) for part in streams]
        for _ in range(steps or max(1, len(streams[0]) // of_each)):
            chosen = np.concatenate([next_of(of_each) for next_of in orders])
            inputs = to_input(gather(stored, points[chosen]))
            seen = [augmented(inputs, plan, rng) for _ in range(views)]
            both = torch.cat(seen) if views > 1 else seen[0]
            yield Batch(both, torch.from_numpy(chosen))

    return Batches(len(points), batches)


def matching_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    labels: NDArray[np.int64],
    plan: LocalPlan,
    unlabeled_size: int,
) -> Batches:
    """Batches of labeled points, augmented by ``plan.augment``, then unlabeled ones, unchanged.

    An epoch is one pass over the labeled points in batches of ``plan.batch_size``, each completed
    by unlabeled ones; without labeled points it is one pass over the unlabeled ones.

    Parameters
    ----------
    stored : the data, images or vectors.
    points : ``(n,)``, rows of ``stored``.
    labels : ``(n,)``, targets of the batches; -1 for unlabeled points.
    unlabeled_size : number of unlabeled points per batch, at most all; 0 spreads them evenly over
        the epoch's labeled batches or, without these, takes ``plan.batch_size``.
    """
    labeled, others = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        if len(labeled):
            of_labeled = epoch_order(len(labeled), plan.batch_size, rng)
            unknown = _beside(len(others), len(of_labeled), unlabeled_size, rng)
        else:
            unknown = epoch_order(len(others), unlabeled_size or plan.batch_size, rng)
            of_labeled = [labeled] * len(unknown)
        for seen, unseen in zip(of_labeled, unknown, strict=True):
            chosen = np.concatenate([labeled[seen], others[unseen]])
            inputs = to_input(gather(stored, points[chosen]))
            if len(seen):
                inputs[: len(seen)] = augmented(inputs[: len(seen)], plan, rng)
            yield Batch(inputs, torch.from_numpy(labels[chosen]), len(seen))

    return Batches(len(points), batches)


def fix_mix_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    labels: NDArray[np.int64],
    sure: NDArray[np.int64],
    plan: LocalPlan,
) -> Batches:
    """Batches of sure points, then as many of all points, drawn with replacement; all unchanged.

    Parameters
    ----------
    stored : the data, images or vectors.
    points, labels : ``(n,)``, rows of ``stored``, and their pseudo labels.
    sure : ``(m,)``, positions in ``points``; an epoch is one pass over these.
    """

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        for batch in epoch_order(len(sure), plan.batch_size, rng):
            others = rng.integers(len(points), size=len(batch))
            chosen = np.concatenate([sure[batch], others])
            inputs = to_input(gather(stored, points[chosen]))
            yield Batch(inputs, torch.from_numpy(labels[chosen]))

    return Batches(len(sure), batches)


def _beside(
    num_points: int, num_batches: int, size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """``size`` positions for each batch, reshuffled after every pass; 0 uses each position once."""
    if size == 0:
        return np.array_split(rng.permutation(num_points), num_batches)
    next_of = _endless(np.arange(num_points), rng)
    return [next_of(size) for _ in range(num_batches)]


def _endless(
    positions: NDArray[np.int64], rng: np.random.Generator
) -> Callable[[int], NDArray[np.int64]]:
    """A function that returns the next ``count`` positions, reshuffled after every pass."""
    waiting = np.empty(0, dtype=np.int64)

    def take(count: int) -> NDArray[np.int64]:
        nonlocal waiting
        count = min(count, len(positions))
        if len(waiting) < count:
            waiting = np.concatenate([waiting, rng.permutation(positions)])
        taken, waiting = waiting[:count], waiting[count:]
        return taken

    return take


def evaluation_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    batch_size: int,
    plan: LocalPlan | None = None,
    views: np.random.Generator | None = None,
) -> Iterator[Tensor]:
    """All ``points`` in order, as inputs; with ``views`` augmented by ``plan.augment``."""
    for start in range(0, len(points), batch_size):
        inputs = to_input(gather(stored, points[start : start + batch_size]))
        yield inputs if plan is None or views is None else augmented(inputs, plan, views)


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
