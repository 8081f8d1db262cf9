"""Arrays whose bytes are not what is announced: refused by name, and none is decoded."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedul_flwr.array_bytes import check_bytes
from fedul_flwr.bridge import to_arrays
from fedul_flwr.errors import BadMessageError

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


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3), np.float32),
        np.asfortranarray(np.ones((2, 3), np.float32)),
        np.zeros((0, 3)),
        np.array(7),
        np.zeros(3, ">u2"),
        np.zeros(2, np.bool_),
    ],
)
def test_what_flower_makes_of_an_array_is_sound(array: Any) -> None:
    check_bytes("x", Array(array))
    np.testing.assert_array_equal(to_arrays(ArrayRecord({"x": Array(array)}))["x"], array)


FORMAT = "its array 'x' is not in NumPy's format"
ANNOUNCED = "its array 'x' is announced as float32 (2, 3) and"
VAST = (10**6, 10**6)
BAD: dict[str, tuple[Array, str]] = {
    "no format": (like_good(data=b"no array at all"), FORMAT),
    "nothing": (like_good(data=b""), FORMAT),
    "an archive": (like_good(data=b"PK\x03\x04" + bytes(100)), FORMAT),
    "half a header": (like_good(data=GOOD.data[:40]), FORMAT),
    "another kind": (like_good(stype="pickle"), FORMAT),
    "truncated": (like_good(data=GOOD.data[:-1]), f"{ANNOUNCED} has 23 bytes, not 24"),
    "oversized": (like_good(data=GOOD.data + bytes(8)), f"{ANNOUNCED} has 32 bytes, not 24"),
    # Four terabytes, for which nobody may ask for memory.
    "vast": (
        like_good(shape=VAST, data=npy(VAST, bytes(24))),
        f"its array 'x' is announced as float32 {VAST} and has 24 bytes, not {4 * 10**12}",
    ),
    "a vast header": (
        like_good(data=npy(VAST, bytes(24))),
        f"{ANNOUNCED} begins as float32 {VAST}",
    ),
    "another shape": (like_good(data=npy((3, 2), bytes(24))), f"{ANNOUNCED} begins as float32 (3"),
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
