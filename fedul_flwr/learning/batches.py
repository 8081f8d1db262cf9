"""Batches of inputs from memory-mapped images or vectors, and random views of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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


def augmented(inputs: Tensor, plan: LocalPlan, rng: Draws) -> Tensor:
    """A view of each of ``inputs``, ``(n, c, h, w)`` or ``(n, d)``, as ``plan.augment`` says."""
    if ":" in plan.augment:
        assert isinstance(rng, np.random.Generator)
        return augment_by_reference(inputs, plan.augment, rng)
    drawn = _draw_views(tuple(inputs.shape), plan, rng)
    return _apply_views(inputs, plan, [_on(inputs.device, values) for values in drawn])


@dataclass(frozen=True)
class _Chosen:
    """A batch before its points are read.

    Attributes
    ----------
    rows : ``(b,)``, of the stored points.
    targets : one for each, or more.
    num_labeled : see :class:`Batch`.
    augmented : number of first points that are augmented; ``None`` for all.
    views : copies of the points, augmented separately.
    """

    rows: NDArray[np.int64]
    targets: NDArray[Any]
    num_labeled: int = 0
    augmented: int | None = None
    views: int = 1


def _read(
    stored: Inputs, chosen: Iterator[_Chosen], plan: LocalPlan, rng: np.random.Generator
) -> Iterator[Batch]:
    """The batches that are chosen; random numbers of views are drawn as soon as one is."""
    data = None if ":" in plan.augment else on_device(stored, plan.device)
    if data is not None:
        yield from _read_on_device(data, chosen, plan, rng)
        return
    for one in chosen:
        inputs, count = to_input(gather(stored, one.rows)), one.augmented
        if count is None:
            seen = [augmented(inputs, plan, rng) for _ in range(one.views)]
            inputs = torch.cat(seen) if one.views > 1 else seen[0]
        elif count:
            inputs[:count] = augmented(inputs[:count], plan, rng)
        yield Batch(inputs, torch.from_numpy(one.targets), one.num_labeled)


AT_ONCE = 4096
"""Points that are read and augmented together on a device."""


def _read_on_device(
    data: Tensor, chosen: Iterator[_Chosen], plan: LocalPlan, rng: np.random.Generator
) -> Iterator[Batch]:
    """The same of points on a device, many batches in one go: few kernels, few copies."""
    shape = tuple(to_input(data[:1]).shape[1:])
    waiting: list[_Chosen] = []
    drawn: list[Sequence[NDArray[Any]]] = []
    places: list[NDArray[np.int64]] = []
    size = 0
    for one in chosen:
        waiting.append(one)
        for _ in range(one.views):
            count = len(one.rows) if one.augmented is None else one.augmented
            if count:
                values = _draw_views((count, *shape), plan, rng)
                if len(shape) == 1 and plan.augment == "mixup":  # positions of other points
                    values = [values[0], values[1] + sum(map(len, places))]
                drawn.append(values)
                places.append(np.arange(size, size + count))
            size += len(one.rows)
        if size >= AT_ONCE:
            yield from _read_together(data, waiting, drawn, places, plan)
            waiting, drawn, places, size = [], [], [], 0
    if waiting:
        yield from _read_together(data, waiting, drawn, places, plan)


def _read_together(
    data: Tensor,
    chosen: Sequence[_Chosen],
    drawn: Sequence[Sequence[NDArray[Any]]],
    places: Sequence[NDArray[np.int64]],
    plan: LocalPlan,
) -> Iterator[Batch]:
    """Batches of ``chosen``, with the numbers of their views and the positions of viewed points."""
    device = data.device
    rows = np.concatenate([np.tile(one.rows, one.views) for one in chosen])
    inputs = to_input(data.index_select(0, _on(device, rows)))
    if drawn and drawn[0]:
        numbers = [_on(device, np.concatenate(parts)) for parts in zip(*drawn, strict=True)]
        viewed = np.concatenate(places)
        if len(viewed) == len(rows):
            inputs = _apply_views(inputs, plan, numbers)
        else:
            at = _on(device, viewed)
            inputs[at] = _apply_views(inputs[at], plan, numbers)
    targets = _on(device, np.concatenate([one.targets for one in chosen]))
    start = first = 0
    for one in chosen:
        end, last = start + one.views * len(one.rows), first + len(one.targets)
        yield Batch(inputs[start:end], targets[first:last], one.num_labeled)
        start, first = end, last


SHARE = 0.25
"""Share of a device's memory that the data may take; larger ones are read from the disk."""
_data: dict[tuple[Any, ...], tuple[Inputs, Tensor]] = {}


def on_device(stored: Inputs, device: torch.device) -> Tensor | None:
    """The stored points on a GPU, moved there once; ``None`` if they are too many, or on a CPU."""
    if device.type == "cpu":
        return None
    origin = (str(stored.filename), stored.offset) if isinstance(stored, np.memmap) else id(stored)
    key = (origin, stored.shape, stored.dtype.str, torch.cuda.current_device())
    if key not in _data:
        memory = torch.cuda.get_device_properties(key[-1]).total_memory
        if (
            np.asarray(stored).nbytes + sum(data.nbytes for _, data in _data.values())
            > SHARE * memory
        ):
            return None
        _data[key] = stored, torch.from_numpy(np.array(stored)).to(device)
        torch.cuda.synchronize()  # other streams read it
    return _data[key][1]


def point_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    targets: NDArray[Any],
    plan: LocalPlan,
) -> Batches:
    """Shuffled batches of ``plan.batch_size`` points, augmented by ``plan.augment``.

    Parameters
    ----------
    stored : the data, images or vectors.
    points : ``(n,)``, rows of ``stored`` to train on.
    targets : ``(n, …)``, a target for each of ``points``.
    """

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        for batch in epoch_order(len(points), plan.batch_size, rng):
            yield _Chosen(points[batch], targets[batch], len(batch))

    return _batches(len(points), stored, chosen, plan)


def _batches(
    num_points: int,
    stored: Inputs,
    chosen: Callable[[np.random.Generator], Iterator[_Chosen]],
    plan: LocalPlan,
) -> Batches:
    return Batches(num_points, lambda rng: _read(stored, chosen(rng), plan, rng))


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

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        next_of = _endless(np.arange(len(points)), rng)
        for _ in range(count):
            batch = next_of(plan.batch_size or len(points))
            yield _Chosen(points[batch], targets[batch], len(batch))

    return _batches(len(points), stored, chosen, plan)


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

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        for m in rng.permutation(list(members)):
            rows = members[int(m)]
            yield _Chosen(rows, np.full(len(rows), int(m)))

    return _batches(len(points), stored, chosen, plan)


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

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        bags = [
            (m, part)
            for m, of_set in zip(np.unique(sets), members, strict=True)
            for part in np.array_split(rng.permutation(of_set), -(-len(of_set) // bag_size))
        ]
        each = max(1, plan.batch_size // bag_size) if plan.batch_size else 0
        for batch in epoch_order(len(bags), each, rng):
            drawn = [bags[position] for position in batch]
            rows = np.concatenate([part for _, part in drawn])
            numbers = [(m, bag) for bag, (m, part) in enumerate(drawn) for _ in part]
            yield _Chosen(rows, np.array(numbers))

    return _batches(len(points), stored, chosen, plan)


def paired_batches(
    stored: Inputs,
    points: NDArray[np.int64],
    num_labeled: int,
    plan: LocalPlan,
    views: int = 1,
    targets: NDArray[Any] | None = None,
) -> Batches:
    """Batches of labeled and as many unlabeled points; unlabeled ones come first.

    An epoch is one pass over the unlabeled points, with labeled ones repeated; without unlabeled
    points it is one pass over the labeled ones.

    Parameters
    ----------
    stored : the data, images or vectors.
    points : ``(n,)``, rows of ``stored``, the labeled ones first.
    num_labeled : number of labeled points. A batch has ``plan.batch_size`` of them, or all if there
        are fewer.
    views : copies of the batch, augmented separately: inputs are ``(views · b, c, h, w)``.
    targets : ``(n, …)``, of each of ``points``; by default their positions.
    """
    of_points = np.arange(len(points)) if targets is None else targets
    labeled = np.arange(num_labeled)
    others = np.arange(num_labeled, len(points))
    of_each = points_of_each(len(points), num_labeled, plan)

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        streams = [part for part in (others, labeled) if len(part)]
        orders = [_endless(part, rng) for part in streams]
        for _ in range(max(1, len(streams[0]) // of_each)):
            at = np.concatenate([next_of(of_each) for next_of in orders])
            yield _Chosen(points[at], of_points[at], views=views)

    return _batches(len(points), stored, chosen, plan)


def points_of_each(num_points: int, num_labeled: int, plan: LocalPlan) -> int:
    """Most points of either kind in a batch of :func:`paired_batches`."""
    return min(plan.batch_size or num_points, num_labeled or num_points)


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

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        if len(labeled):
            of_labeled = epoch_order(len(labeled), plan.batch_size, rng)
            unknown = _beside(len(others), len(of_labeled), unlabeled_size, rng)
        else:
            unknown = epoch_order(len(others), unlabeled_size or plan.batch_size, rng)
            of_labeled = [labeled] * len(unknown)
        for seen, unseen in zip(of_labeled, unknown, strict=True):
            at = np.concatenate([labeled[seen], others[unseen]])
            yield _Chosen(points[at], labels[at], len(seen), augmented=len(seen))

    return _batches(len(points), stored, chosen, plan)


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

    def chosen(rng: np.random.Generator) -> Iterator[_Chosen]:
        for batch in epoch_order(len(sure), plan.batch_size, rng):
            others = rng.integers(len(points), size=len(batch))
            at = np.concatenate([sure[batch], others])
            yield _Chosen(points[at], labels[at], augmented=0)

    return _batches(len(sure), stored, chosen, plan)


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
    views: Draws | None = None,
) -> Iterator[Tensor]:
    """All ``points`` in order, as inputs; with ``views`` augmented by ``plan.augment``."""
    for start in range(0, len(points), batch_size):
        rows = points[start : start + batch_size]
        device = torch.device("cpu") if plan is None or ":" in plan.augment else plan.device
        data = on_device(stored, device)
        part = gather(stored, rows) if data is None else data.index_select(0, _on(device, rows))
        inputs = to_input(part)
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
    if height != width:
        ratios = [matrices.new_full((), share) for share in (height / width, width / height)]
        one = matrices.new_ones(())
        matrices = matrices * torch.stack([one, *ratios, one]).view(2, 2)
    maps = torch.cat([matrices, 2 * shifts[:, :, None]], dim=2)
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


class Draws(Protocol):
    """Draws what a view needs: NumPy's generator, or :class:`DeviceDraws`."""

    def uniform(self, low: float, high: float, size: Any) -> Any:
        """Uniform numbers in [low, high)."""

    def random(self, size: Any) -> Any:
        """Uniform numbers in [0, 1)."""

    def integers(self, low: int, high: int, size: Any) -> Any:
        """Whole numbers from low to below high."""

    def standard_normal(self, size: Any) -> Any:
        """Standard normal numbers."""

    def permutation(self, x: int) -> Any:
        """The numbers from 0 to below x in random order."""


class DeviceDraws:
    """Draws from the generator of a device, so that a recorded step draws anew."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def uniform(self, low: float, high: float, size: Any) -> Tensor:
        """Uniform numbers in [low, high)."""
        return low + (high - low) * self.random(size)

    def random(self, size: Any) -> Tensor:
        """Uniform numbers in [0, 1)."""
        return torch.rand(size, dtype=torch.float64, device=self._device)

    def integers(self, low: int, high: int, size: Any) -> Tensor:
        """Whole numbers from low to below high."""
        return torch.randint(low, high, size, device=self._device)

    def standard_normal(self, size: Any) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(size, dtype=torch.float64, device=self._device)

    def permutation(self, x: int) -> Tensor:
        """The numbers from 0 to below x in random order."""
        return torch.randperm(x, device=self._device)


def _on(device: torch.device, values: NDArray[Any] | Tensor) -> Tensor:
    """``values`` on ``device``, without waiting for it."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    return tensor.to(device, non_blocking=True)


def _draw_views(shape: tuple[int, ...], plan: LocalPlan, rng: Draws) -> Sequence[Any]:
    """Numbers of the views of points of ``shape``: arrays with an entry for each point."""
    count = shape[0]
    if len(shape) == 2:
        match plan.augment:
            case "noise":
                return [rng.standard_normal(shape)]
            case "dropout":
                return [rng.random(shape)]
            case "mixup":
                return [rng.random(count), rng.permutation(count)]
        return []
    match plan.augment:
        case "rotate":
            return [rng.uniform(-ROTATION_DEGREES, ROTATION_DEGREES, count)]
        case "flip":
            return [rng.random(count)]
        case "translate-flip":
            most = TRANSLATION_PIXELS
            return [rng.integers(-most, most + 1, (2, count)).T, rng.random(count)]
        case "affine":
            return [
                rng.uniform(-AFFINE_DEGREES, AFFINE_DEGREES, count),
                rng.uniform(-AFFINE_SCALE, AFFINE_SCALE, count),
                rng.uniform(-AFFINE_PIXELS, AFFINE_PIXELS, (count, 2)),
            ]
        case "rotate-flip":
            most_degrees = SMALL_ROTATION_DEGREES
            return [rng.uniform(-most_degrees, most_degrees, count), rng.random(count)]
    return []


def _apply_views(inputs: Tensor, plan: LocalPlan, drawn: Sequence[Tensor]) -> Tensor:
    """Views of ``inputs`` by the numbers of :func:`_draw_views`."""
    match plan.augment if drawn else "none":
        case "noise":
            return inputs + plan.noise * drawn[0].to(inputs.dtype)
        case "dropout":
            return inputs * (drawn[0] >= plan.feature_dropout)
        case "mixup":
            return mixed(inputs, drawn[1], plan.mixup * drawn[0])
        case "rotate":
            return rotate(inputs, drawn[0])
        case "flip":
            return flip(inputs, drawn[0] < 0.5)
        case "translate-flip":
            down, right = drawn[0].unbind(1)
            return flip(translate(inputs, down, right), drawn[1] < 0.5)
        case "affine":
            return _changed(inputs, *drawn)
        case "rotate-flip":
            return flip(rotate(inputs, drawn[0]), drawn[1] < 0.5)
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


def _changed(inputs: Tensor, degrees: Tensor, sizes: Tensor, pixels: Tensor) -> Tensor:
    """Rotate, scale and shift every image, with a single resampling."""
    turns = rotations(degrees.to(inputs.dtype))
    matrices = turns / (1 + sizes).to(inputs.dtype)[:, None, None]
    sides = torch.stack([pixels.new_full((), side) for side in inputs.shape[:1:-1]])
    shifts = pixels.to(inputs.dtype) / sides.to(inputs.dtype)
    return warp(inputs + 1, matrices, shifts, "nearest").sub_(1)


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
    images = torch.arange(len(inputs), device=inputs.device)[:, None, None]
    # Indexing on both sides of the channels puts these last: (n, h, w, c), as in memory.
    return inputs[images, :, rows, columns].permute(0, 3, 1, 2)


def _reflected(size: int, shift: Tensor) -> Tensor:
    """``(n, size)``: source position along an axis for every pixel."""
    period = max(2 * (size - 1), 1)  # there and back again
    position = (torch.arange(size, device=shift.device) - shift[:, None]) % period
    return torch.minimum(position, period - position)


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
