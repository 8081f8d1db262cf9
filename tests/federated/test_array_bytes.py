"""Arrays whose bytes are not what is announced: refused by name, and none is decoded."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.combine import is_finite
from fedul_flwr.federated.messages import (
    PlainArray,
    TensorArray,
    check_bytes,
    num_bytes,
    to_arrays,
    to_record,
)
from tests.support.refusals import refuses

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
def test_a_plain_array_is_flowers_with_the_rows_first_and_both_are_sound(array: Any) -> None:
    check_bytes("x", Array(array))
    np.testing.assert_array_equal(to_arrays(ArrayRecord({"x": Array(array)}))["x"], array)
    flowers, ours = Array(np.asarray(array, order="C")), PlainArray.of(array)
    form = ("dtype", "shape", "stype", "data")
    assert [getattr(ours, name) for name in form] == [getattr(flowers, name) for name in form]
    np.testing.assert_array_equal(ours.numpy(), array)
    assert ours.numpy().dtype == array.dtype
    # To other machines it goes as Flower's own.
    assert ours.deflate() == flowers.deflate()
    assert ours.object_id == flowers.object_id


VAST = (10**6, 10**6)
BAD: dict[str, Array] = {
    "no format": like_good(data=b"no array at all"),
    "half a header": like_good(data=GOOD.data[:40]),
    "truncated": like_good(data=GOOD.data[:-1]),
    # Four terabytes, for which nobody may ask for memory.
    "vast": like_good(shape=VAST, data=npy(VAST, bytes(24))),
    "a vast header": like_good(data=npy(VAST, bytes(24))),
    "another type": like_good(data=npy((2, 3), bytes(24), "<i4")),
    "negative": like_good(shape=(-2, -3), data=npy((-2, -3), bytes(24))),
    "objects": like_good(dtype="object", data=npy((2, 3), bytes(48), "|O")),
}


@pytest.mark.parametrize("array", BAD.values(), ids=BAD)
def test_anything_else_is_refused(array: Array) -> None:
    with refuses("message-form", BadMessageError, match="its array 'x'"):
        to_arrays(ArrayRecord({"x": array}))


def test_an_array_on_a_device_is_a_plain_one_once_it_is_read() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    record = to_record({"x": torch.from_numpy(values), "n": torch.tensor(3)})
    array = record["x"]
    assert isinstance(array, TensorArray)
    check_bytes("x", array)
    plain = PlainArray.of(values)
    assert num_bytes(array) == num_bytes(plain)
    assert (array.dtype, array.shape, array.stype) == (plain.dtype, plain.shape, plain.stype)
    assert is_finite(record)
    assert array == plain
    np.testing.assert_array_equal(array.numpy(), values)
    assert not is_finite(to_record({"x": torch.tensor([1.0, np.nan]), "y": torch.zeros(1)}))
