"""Points that look different at each owner of a simulation (setting `shift`).

Each owner, or a stated share of them, has a draw from the run's seed, and all of its points are
shifted by it as they are read: nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.shared import IMAGE_SHIFTS, VECTOR_SHIFTS, Shift
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.standardize import ScaledInputs
from fedul_flwr.data.types import Inputs, InputShape

FULL = 255
"""White, in images of 8 bits."""


class Draw(NamedTuple):
    """What one owner's points are shifted by.

    Attributes
    ----------
    first, second : from -1 to 1, times the strength.
    strength : what the setting states.
    of_columns : ``(d,)``, from -1 to 1, of vectors.
    noise : generator of the noise of one point, by its row.
    """

    first: float
    second: float
    strength: float
    of_columns: Floats
    noise: Callable[[int], np.random.Generator]


def require_fit(text: str, shape: InputShape) -> None:
    """Refuse a setting that points of this shape do not have.

    Raises
    ------
    UserError
        With the kinds that there are.
    """
    what, kinds = _KINDS.get(len(shape), ("texts", ()))
    if text and Shift.parse(text).kind not in kinds:
        why = f"{what} have {', '.join(kinds)}" if kinds else f"{what} have no shift"
        raise setting_error("shift", text, why, "setting-unfit-for-data")


def draw_of(
    shift: Shift, seed: int, client: int, num_clients: int, shape: InputShape
) -> Draw | None:
    """What this client's points are shifted by; ``None`` for one that is not shifted.

    Which clients are shifted follows from the seed: ``share`` of them, rounded up.
    """
    order = stream(seed, "shifted owners").permutation(num_clients)
    if client not in order[: int(np.ceil(shift.share * num_clients - 1e-9))]:
        return None
    rng = stream(seed, "shift", client)
    first, second = shift.strength * rng.uniform(-1, 1, 2)
    of_columns = rng.uniform(-1, 1, shape[0] if len(shape) == 1 else 0)
    noise = partial(stream, seed, "noise of a shift", client)
    return Draw(float(first), float(second), shift.strength, of_columns, noise)


def apply(
    shift: Shift, points: NDArray[Any], rows: Ints, draw: Draw, spread: Floats
) -> NDArray[Any]:
    """Points ``(n, …)`` as they look at an owner, of the same type.

    Parameters
    ----------
    rows : ``(n,)``, by which noise is drawn: a point has the same at each read.
    spread : ``(d,)``, deviations of columns; 0 of those that stay.
    """
    if len(points) == 0:
        return points
    x = points.astype(np.float32)
    if x.ndim == 2:
        return OF_VECTORS[shift.kind](x, rows, draw, spread).astype(points.dtype)
    images = np.clip(np.rint(OF_IMAGES[shift.kind](x, rows, draw)), 0, FULL)
    return np.asarray(images.astype(points.dtype))


def _brighter(x: NDArray[Any], _: Ints, draw: Draw) -> NDArray[Any]:
    return x + FULL * draw.first


def _of_contrast(x: NDArray[Any], _: Ints, draw: Draw) -> NDArray[Any]:
    return np.asarray(FULL / 2 + (x - FULL / 2) * np.exp(draw.first))


def _blurred(x: NDArray[Any], _: Ints, draw: Draw) -> NDArray[Any]:
    from scipy import ndimage

    width = abs(draw.first)
    return np.asarray(ndimage.gaussian_filter(x, (0, width, width, 0)))


def _with_noise(x: NDArray[Any], rows: Ints, draw: Draw) -> NDArray[Any]:
    return np.asarray(x + FULL * _noise(rows, draw, x.shape[1:]))


def _moved(x: NDArray[Any], _: Ints, draw: Draw) -> NDArray[Any]:
    from scipy import ndimage

    down, right = round(draw.first), round(draw.second)
    return np.asarray(ndimage.shift(x, (0, down, right, 0), order=0, mode="nearest"))


def _noise(rows: Ints, draw: Draw, shape: InputShape) -> NDArray[Any]:
    drawn = [draw.noise(int(row)).standard_normal(shape, np.float32) for row in rows]
    return np.asarray(abs(draw.first) * np.stack(drawn))


OF_IMAGES: dict[str, Callable[[NDArray[Any], Ints, Draw], NDArray[Any]]] = {
    "brightness": _brighter,
    "contrast": _of_contrast,
    "blur": _blurred,
    "noise": _with_noise,
    "moved": _moved,
}
"""Images ``(n, h, w, c)``, from 0 to 255, by kind of shift: a part of white is added, distances
from mid gray grow or shrink by a factor up to e^±strength, a Gaussian of up to so many pixels
blurs, noise has a deviation up to such a part of white, or the image moves up to so many pixels, as
its edge goes on."""


def _in_unit(x: NDArray[Any], _: Ints, draw: Draw, spread: Floats) -> NDArray[Any]:
    return np.asarray(x * np.where(spread > 0, np.exp(draw.strength * draw.of_columns), 1))


def _offset(x: NDArray[Any], _: Ints, draw: Draw, spread: Floats) -> NDArray[Any]:
    return np.asarray(x + draw.strength * draw.of_columns * spread)


def _noisy(x: NDArray[Any], rows: Ints, draw: Draw, spread: Floats) -> NDArray[Any]:
    return np.asarray(x + _noise(rows, draw, x.shape[1:]) * spread)


OF_VECTORS: dict[str, Callable[[NDArray[Any], Ints, Draw, Floats], NDArray[Any]]] = {
    "scale": _in_unit,
    "offset": _offset,
    "noise": _noisy,
}
"""Vectors ``(n, d)``: columns times factors up to e^±strength, as in another unit, each its own;
plus parts of the column's deviation, each its own; with noise of such a part of it."""
_KINDS = {1: ("vectors", VECTOR_SHIFTS), 3: ("images", IMAGE_SHIFTS)}


def spreads(inputs: Inputs) -> Floats:
    """``(d,)``, deviations of columns over all points; 0 where all values are 0 or 1, as those of
    categories are."""
    values = np.asarray(inputs[:], np.float64)
    is_number = ~np.isin(values, (0.0, 1.0)).all(axis=0)
    return np.where(is_number, np.nanstd(values, axis=0), 0.0)


@dataclass(frozen=True)
class ShiftedInputs:
    """Points that are shifted when rows are taken, like an array of them.

    Attributes
    ----------
    raw : uint8 images ``(n, h, w, c)`` or float32 vectors ``(n, d)``, usually memory-mapped.
    like : vectors by whose deviations columns are shifted; those of the training points.
    """

    raw: Inputs
    shift: Shift
    draw: Draw
    like: Inputs

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        numbers = np.atleast_1d(np.arange(len(self.raw))[rows])
        points = apply(self.shift, self.raw[numbers], numbers, self.draw, self._spread)
        return points[0] if np.ndim(np.arange(len(self.raw))[rows]) == 0 else points

    def __len__(self) -> int:
        return len(self.raw)

    @cached_property
    def _spread(self) -> Floats:
        return spreads(self.like) if len(self.raw.shape) == 2 else np.zeros(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, …)``."""
        return self.raw.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.raw.dtype


def shifted(
    inputs: Inputs, text: str, seed: int, client: int, num_clients: int, like: Inputs
) -> Inputs:
    """Points of a simulated client by the setting ``text``; as they are where it is empty."""
    if not text:
        return inputs
    if isinstance(inputs, ScaledInputs):  # an owner's points are shifted before
        raw = shifted(inputs.raw, text, seed, client, num_clients, like)
        return replace(inputs, raw=raw)
    like = like.raw if isinstance(like, ScaledInputs) else like
    shift = Shift.parse(text)
    draw = draw_of(shift, seed, client, num_clients, tuple(inputs.shape[1:]))
    return inputs if draw is None else ShiftedInputs(inputs, shift, draw, like)
