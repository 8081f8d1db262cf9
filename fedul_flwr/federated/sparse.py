"""Arrays that travel as what changed since the receiver last had them (FedMatch, section 3.2).

The paper sends differences. Here the new value of every entry that changed travels, in as many
bytes: held + (new − held) is rounded, so the receiver would end with other bits than the sender,
and the two would drift apart over the rounds. A copy is not: both ends hold the very same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays

INDICES, MASK, VALUES = PARTS = ("/indices", "/mask", "/values")
"""What the name of an array is followed by where only a part of it travels."""

HEADER = 128
"""Bytes with which an array begins when it travels: NumPy's format, with type and shape."""


class Update(NamedTuple):
    """What a sender makes of its arrays for one receiver.

    Attributes
    ----------
    record : what travels, by name. Of an array whose values all stay: nothing. Of others whichever
        has the fewest bytes: ``NAME/indices`` (uint32, flat positions that increase) with
        ``NAME/values``; ``NAME/mask`` (a bit per value, as of :func:`numpy.packbits`) with
        ``NAME/values``; or the whole array of ``kept`` as ``NAME``.
    kept : what both ends hold afterwards, whole arrays. The form does not change it.
    changed : values that are sent because they differ, of all arrays together.
    """

    record: Arrays
    kept: Arrays
    changed: int


def encode(
    new: Mapping[str, NDArray[Any]], held: Mapping[str, NDArray[Any]], threshold: float
) -> Update:
    """What a receiver that holds ``held`` needs in order to have ``new``.

    A value is sent where its bits differ and abs(new − held) >= ``threshold``. All others stay the
    receiver's, and the sender adopts those (``kept``). With ``threshold`` 0 nothing is lost, not
    even the sign of a zero. What is not a number always differs enough; integers are exact whatever
    the threshold. A float32 model costs at most its share of changed values and 1/32 for masks,
    beside two headers an array.

    Parameters
    ----------
    new : float or integer arrays of any shape, each of fewer than 2^32 values.
    held : arrays of the same names, types and shapes; empty for a receiver that was never seen, to
        which everything is sent whole.

    Raises
    ------
    ValueError
        If names, types or shapes differ, or a name ends like the parts of ``record``.
    """
    for name in new:
        if name.endswith(PARTS):
            raise ValueError(f"Array {name!r} is named like a part of an array.")
    if not held:
        whole = {name: np.array(array) for name, array in new.items()}
        return Update(dict(whole), whole, sum(array.size for array in whole.values()))
    if odd := sorted(new.keys() ^ held.keys()):
        raise ValueError(f"Array {odd[0]!r} is not on both sides of an update.")
    update, changed = Update({}, {}, 0), 0
    for name, array in new.items():
        _expect(name, array, held[name].dtype, held[name].shape)
        positions = np.flatnonzero(_differ(array, held[name], threshold))
        kept = _replaced(held[name], positions, np.ravel(array)[positions])
        update.kept[name] = kept
        update.record.update(_smallest(name, kept, positions))
        changed += len(positions)
    return update._replace(changed=changed)


def decode(record: Mapping[str, NDArray[Any]], held: Mapping[str, NDArray[Any]]) -> Arrays:
    """What the receiver holds after an update: new arrays, bit for bit the sender's ``kept``.

    Parameters
    ----------
    record : of :func:`encode`, from the network: nothing in it is trusted.
    held : what the receiver holds; may be read-only. Where it is empty the record has to be whole
        arrays, and whether they are all is for the caller to say, who knows the model.

    Raises
    ------
    ValueError
        If the record does not fit ``held``: a sentence that names the array.
    """
    if not held:
        if odd := sorted(key for key in record if key.endswith(PARTS)):
            raise ValueError(f"The update's {odd[0]!r} changes an array that is not held.")
        return {name: np.array(array) for name, array in record.items()}
    known = {name + part for name in held for part in ("", *PARTS)}
    if odd := sorted(record.keys() - known):
        raise ValueError(f"The update's {odd[0]!r} belongs to no array that is held.")
    return {name: _decode_array(name, record, array) for name, array in held.items()}


def _differ(new: NDArray[Any], held: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    """Which values are sent."""
    bits = f"u{new.itemsize}"
    differ = np.asarray(new.view(bits) != held.view(bits))
    if threshold > 0 and np.issubdtype(new.dtype, np.floating):
        with np.errstate(over="ignore", invalid="ignore"):
            differ &= ~(np.abs(new - held) < threshold)  # not >=, which is false for NaN
    return differ


def _replaced(held: NDArray[Any], positions: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    after = np.array(held, order="C")
    after.reshape(-1)[positions] = values
    return after


def _smallest(name: str, kept: NDArray[Any], positions: NDArray[np.intp]) -> Arrays:
    """The form of an array that has the fewest bytes; of equals the simplest."""
    if len(positions) == 0:
        return {}
    indices, mask = 4 * len(positions), -(-kept.size // 8)
    # A whole array has one header, parts have two.
    if kept.nbytes <= HEADER + min(indices, mask) + len(positions) * kept.itemsize:
        return {name: kept}
    values = kept.reshape(-1)[positions]
    if indices <= mask:
        return {name + INDICES: positions.astype(np.uint32), name + VALUES: values}
    changed = np.zeros(kept.size, np.bool_)
    changed[positions] = True
    return {name + MASK: np.packbits(changed), name + VALUES: values}


def _decode_array(
    name: str, record: Mapping[str, NDArray[Any]], held: NDArray[Any]
) -> NDArray[Any]:
    form = tuple(part for part in ("", *PARTS) if name + part in record)
    if form == ():
        return np.array(held)
    if form == ("",):
        _expect(name, record[name], held.dtype, held.shape)
        return np.array(record[name])
    if form == (INDICES, VALUES):
        positions = _checked_indices(name + INDICES, record[name + INDICES], held.size)
    elif form == (MASK, VALUES):
        mask = record[name + MASK]
        _expect(name + MASK, mask, np.dtype(np.uint8), (-(-held.size // 8),))
        positions = np.flatnonzero(np.unpackbits(mask, count=held.size).view(np.bool_))
    else:
        found = ", ".join(repr(name + part) for part in form)
        raise ValueError(
            f"Array {name!r} must be whole, indices with values or a mask with values; "
            f"the update has {found}."
        )
    _expect(name + VALUES, record[name + VALUES], held.dtype, positions.shape)
    return _replaced(held, positions, record[name + VALUES])


def _checked_indices(name: str, indices: NDArray[Any], size: int) -> NDArray[Any]:
    _expect(name, indices, np.dtype(np.uint32), (indices.size,))
    if np.any(indices[1:] <= indices[:-1]) or np.any(indices[-1:] >= size):
        raise ValueError(f"The update's {name!r} must increase and stay below {size}.")
    return indices


def _expect(name: str, array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} of shape {array.shape}"
        raise ValueError(f"The update's {name!r} is {found}, not {dtype} of shape {shape}.")
