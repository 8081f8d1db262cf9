"""Encodes arrays as the values that changed since the receiver got them (FedMatch, section 3.2).

The paper sends differences. Here the new value of each changed entry is sent, in as many bytes:
held + (new − held) is rounded, so receiver and sender would drift apart over the rounds. With
copied values both ends have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays, blocks

INDICES, MASK, VALUES = PARTS = ("/indices", "/mask", "/values")
"""Suffixes of an array's name where only a part of the array is sent."""

HEADER = 128
"""Size in bytes of a sent array's header: NumPy's format, with type and shape."""


class Update(NamedTuple):
    """Encoded arrays for one receiver.

    Attributes
    ----------
    record : arrays to send, by name; none for an array without changes. For others whichever
        has the fewest bytes: ``NAME/indices`` (uint32, increasing flat positions) with
        ``NAME/values``; ``NAME/mask`` (a bit per value, as of :func:`numpy.packbits`) with
        ``NAME/values``; or the whole array of ``kept`` as ``NAME``.
    stored : the whole arrays that both ends have afterwards, whichever form was sent.
    changed : number of values sent because they differ, in all arrays together.
    """

    record: Arrays
    stored: Arrays
    changed: int


def encode(
    new: Mapping[str, NDArray[Any]], base: Mapping[str, NDArray[Any]], threshold: float
) -> Update:
    """Encode ``new`` for a receiver that has ``base``.

    A value is sent where its bits differ and abs(new − held) >= ``threshold``. Elsewhere the sender
    adopts the receiver's value (``kept``). With ``threshold`` 0 nothing is lost, not even the sign
    of a zero. NaN is always sent; integers are exact for any threshold. The size of a float32 model
    is at most its share of changed values plus 1/32 for masks, plus two headers per array.

    Parameters
    ----------
    new : float or integer arrays of any shape, each of fewer than 2^32 values.
    base : arrays of the same names, types and shapes; empty for a receiver that was never seen, to
        which everything is sent whole.
    """
    if not base:
        whole = {name: np.array(array) for name, array in new.items()}
        return Update(dict(whole), whole, sum(array.size for array in whole.values()))
    update, changed = Update({}, {}, 0), 0
    for name, array in new.items():
        chosen = _differ(array, base[name], threshold)
        positions = np.flatnonzero(chosen)  # faster to index with than a mask
        values = np.ravel(array).take(positions)
        sent = _replaced(base[name], positions, values)
        update.stored[name] = sent
        update.record.update(_smallest(name, sent, chosen, positions, values))
        changed += len(positions)
    return update._replace(changed=changed)


def decode(record: Mapping[str, NDArray[Any]], base: Mapping[str, NDArray[Any]]) -> Arrays:
    """Apply an update: new arrays, equal to the sender's ``kept`` bit for bit.

    Parameters
    ----------
    record : of :func:`encode`, from the network: nothing in it is trusted.
    base : the receiver's arrays; may be read-only. If empty, the record must have whole arrays;
        the caller, who knows the model, checks that none is missing.

    Raises
    ------
    ValueError
        If the record does not fit ``base``; the message names the array.
    """
    parts = {key for key in record if key.endswith(PARTS)}
    names = {name + part for name in base for part in ("", *PARTS)}
    if odd := sorted(record.keys() - names if base else parts):
        raise ValueError(f"The update's {odd[0]!r} belongs to no array that is held.")
    if not base:
        return {name: np.array(array) for name, array in record.items()}
    return {name: _decode_array(name, record, array) for name, array in base.items()}


BLOCK = 1 << 15
"""Values that are compared at a time: they and what comes between stay in a core's cache."""


def in_blocks(*arrays: NDArray[Any]) -> Iterator[Sequence[NDArray[Any]]]:
    """Flat views of arrays of one size, :data:`BLOCK` values of each at a time."""
    flat = [np.ravel(array) for array in arrays]
    for block in blocks(flat[0].size, BLOCK):
        yield [array[block] for array in flat]


def _differ(new: NDArray[Any], base: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    """Flat mask of the values to send."""
    bits = f"u{new.itemsize}"
    differ = np.empty(new.size, np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        for one, other, to_send in in_blocks(new, base, differ):
            np.not_equal(one.view(bits), other.view(bits), out=to_send)
            if threshold > 0 and np.issubdtype(new.dtype, np.floating):
                near = np.abs(one - other) < threshold  # not >=, which is false for NaN
                np.greater(to_send, near, out=to_send)
    return differ


def _replaced(base: NDArray[Any], positions: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    after = np.array(base, order="C")
    after.reshape(-1)[positions] = values
    return after


def _smallest(
    name: str,
    sent: NDArray[Any],
    chosen: NDArray[np.bool_],
    positions: NDArray[np.intp],
    values: NDArray[Any],
) -> Arrays:
    """The form of an array with the fewest bytes; the simplest one on ties."""
    if len(positions) == 0:
        return {}
    indices, mask = 4 * len(positions), -(-sent.size // 8)
    # A whole array has one header, parts have two.
    if sent.nbytes <= HEADER + min(indices, mask) + values.nbytes:
        return {name: sent}
    if indices <= mask:
        return {name + INDICES: positions.astype(np.uint32), name + VALUES: values}
    return {name + MASK: np.packbits(chosen), name + VALUES: values}


def _decode_array(
    name: str, record: Mapping[str, NDArray[Any]], base: NDArray[Any]
) -> NDArray[Any]:
    form = tuple(part for part in ("", *PARTS) if name + part in record)
    if form == ():
        return np.array(base)
    if form == ("",):
        _expect(name, record[name], base.dtype, base.shape)
        return np.array(record[name])
    if form == (INDICES, VALUES):
        positions = record[name + INDICES]
        _expect(name + INDICES, positions, np.dtype(np.uint32), (positions.size,))
        if np.any(positions[1:] <= positions[:-1]) or np.any(positions[-1:] >= base.size):
            raise ValueError(
                f"The update's {name + INDICES!r} must increase and stay below {base.size}."
            )
    elif form == (MASK, VALUES):
        mask = record[name + MASK]
        _expect(name + MASK, mask, np.dtype(np.uint8), (-(-base.size // 8),))
        positions = np.flatnonzero(np.unpackbits(mask, count=base.size).view(np.bool_))
    else:
        names = ", ".join(repr(name + part) for part in form)
        raise ValueError(
            f"Array {name!r} must be whole, indices with values or a mask with values; "
            f"the update has {names}."
        )
    _expect(name + VALUES, record[name + VALUES], base.dtype, positions.shape)
    return _replaced(base, positions, record[name + VALUES])


def _expect(name: str, array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        form = f"{array.dtype} of shape {array.shape}"
        raise ValueError(f"The update's {name!r} is {form}, not {dtype} of shape {shape}.")
