"""Arrays whose bytes are not what is announced: refused by name, and none is decoded."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import to_arrays
from fedul_flwr.federated.wire import PlainArray, check_bytes

GOOD = Array(np.arange(6, dtype=np.float32).reshape(2, 3))
"""24 bytes behind a header."""


def like_good(**changed: Any) -> Array:
    form = {name: getattr(GOOD, name) for name in ("dtype", "shape", "stype", "data")}
    return Array(**{**form, **changed})


def npy(shape: tuple[int, ...], data: bytes, dtype: str = "<f4") -> bytes:
    """A header that says so, and these bytes behind it."""
    stream = BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data


ARRAYS = [
    np.zeros((2, 3), np.float32),
    np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    np.arange(12.0).reshape(3, 4)[:, ::2],
    np.zeros((0, 3)),
    np.array(7),
    np.array([1, 2], ">u2"),
    np.array([True, False]),
    np.array([["2020-01-01", "NaT"]], "datetime64[D]"),
    np.array(3, "timedelta64[ms]"),
    np.array(["a", "bcd"]),
    np.array([(1, 2.0)], [("a", "<i4"), ("b", "<f8")]),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_what_flower_makes_of_an_array_is_sound(array: Any) -> None:
    check_bytes("x", Array(array))
    np.testing.assert_array_equal(to_arrays(ArrayRecord({"x": Array(array)}))["x"], array)


@pytest.mark.parametrize("array", ARRAYS)
def test_a_plain_array_is_flowers_with_the_rows_first(array: Any) -> None:
    flowers, ours = Array(np.asarray(array, order="C")), PlainArray.of(array)
    form = ("dtype", "shape", "stype", "data")
    assert [getattr(ours, name) for name in form] == [getattr(flowers, name) for name in form]
    np.testing.assert_array_equal(ours.numpy(), array)
    assert ours.numpy().dtype == array.dtype
    # To other machines it goes as Flower's own.
    assert ours.deflate() == flowers.deflate()
    assert ours.object_id == flowers.object_id


FORMAT = "its array 'x' is not in NumPy's format"
ANNOUNCED = "its array 'x' is announced as float32 (2, 3) and"
VAST = (10**6, 10**6)
BAD: dict[str, tuple[Array, str]] = {
    "no format": (like_good(data=b"no array at all"), FORMAT),
    "half a header": (like_good(data=GOOD.data[:40]), FORMAT),
    "truncated": (like_good(data=GOOD.data[:-1]), f"{ANNOUNCED} has 23 bytes, not 24"),
    # Four terabytes, for which nobody may ask for memory.
    "vast": (
        like_good(shape=VAST, data=npy(VAST, bytes(24))),
        f"its array 'x' is announced as float32 {VAST} and has 24 bytes, not {4 * 10**12}",
    ),
    "a vast header": (
        like_good(data=npy(VAST, bytes(24))),
        f"{ANNOUNCED} begins as float32 {VAST}",
    ),
    "another type": (
        like_good(data=npy((2, 3), bytes(24), "<i4")),
        f"{ANNOUNCED} begins as int32 (2, 3)",
    ),
    "negative": (like_good(shape=(-2, -3), data=npy((-2, -3), bytes(24))), "float32 (-2, -3)"),
    "objects": (
        like_good(dtype="object", data=npy((2, 3), bytes(48), "|O")),
        "its array 'x' is announced as object (2, 3) and begins as object (2, 3)",
    ),
}


@pytest.mark.parametrize(("array", "message"), BAD.values(), ids=BAD)
def test_anything_else_is_refused(array: Array, message: str) -> None:
    with pytest.raises(BadMessageError) as error:
        to_arrays(ArrayRecord({"x": array}))
    assert message in str(error.value)
