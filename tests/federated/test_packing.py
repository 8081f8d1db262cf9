"""All arrays of a message in one: what goes in comes out, and anything else is refused."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    METRICS,
    PACKED,
    pack,
    payload_parts,
    to_arrays,
    to_record,
    unpack,
)

KINDS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint64")


pytestmark = pytest.mark.usefixtures("identity")


def many() -> dict[str, Any]:
    """Arrays of every kind, in no order of names, types or sizes."""
    rng = np.random.default_rng(0)
    return {
        **{f"z.{kind}": rng.integers(0, 9, (2, 3)).astype(kind) for kind in KINDS},
        "a.bool": np.array([True, False]),
        "m.point": np.array(-0.0, np.float32),
        "c.none": np.zeros((0, 4), np.int64),
        "b.not-a-number": np.array([np.nan, np.inf]),
        "ü.columns": np.asfortranarray(rng.normal(size=(3, 2))),
        "k.big-endian": np.arange(3, dtype=">u2"),
    }


def records(**more: Any) -> RecordDict:
    """Two records of arrays, one that is empty, and others before, between and behind."""
    return RecordDict(
        {
            CONFIG: ConfigRecord({"server-round": 3, "name": "x"}),
            "variates": to_record({"w": np.arange(4.0)}),
            METRICS: MetricRecord({"loss": 0.5}),
            ARRAYS: to_record(many()),
            "empty": ArrayRecord(),
            "last": ConfigRecord({"list": [1, 2]}),
            **more,
        }
    )


def test_what_is_packed_comes_out_as_it_was() -> None:
    before = records()
    packed = pack(before)
    assert list(packed) == [CONFIG, METRICS, "last", PACKED]
    assert list(packed.array_records[PACKED]) == [PACKED]
    after = unpack(packed)
    assert list(before) == list(records())  # it was not touched
    assert list(after) == list(before)
    assert after == before
    for name, arrays in before.array_records.items():
        assert list(after.array_records[name]) == list(arrays)
    for name, array in to_arrays(after.array_records[ARRAYS]).items():
        np.testing.assert_array_equal(array, many()[name])
        assert array.dtype == many()[name].dtype
    assert payload_parts(after) == payload_parts(before)


def packed_by_hand(table: Any, data: bytes) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return data + text + len(text).to_bytes(8, "little")


def content_of(data: bytes, *others: str, **changed: Any) -> RecordDict:
    form = {"dtype": "uint8", "shape": (len(data),), "stype": "fedul_flwr.packed", "data": data}
    whole = Array(**{**form, **changed})
    beside = {name: ConfigRecord() for name in others}
    return RecordDict({**beside, PACKED: ArrayRecord({PACKED: whole})})


FORM = ["w", "float32", [2], "numpy.ndarray", 3]


def test_the_form_is_the_one_described() -> None:
    arrays = ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", b"abc")})
    content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord()})
    data = packed_by_hand([[ARRAYS, [FORM]], [CONFIG, None]], b"abc")
    assert pack(content) == content_of(data, CONFIG)
    assert unpack(content_of(data, CONFIG)) == content


SOUND = packed_by_hand([[ARRAYS, [FORM]]], b"abc")


def announcing(*form: Any) -> RecordDict:
    return content_of(packed_by_hand([[ARRAYS, [list(form)]]], b"abc"))


LENGTH = 1 << 22
BAD: dict[str, RecordDict] = {
    "nothing": content_of(b""),
    "truncated": content_of(SOUND[:-1]),
    "a table longer than all": content_of(b"abc[]" + (99).to_bytes(8, "little")),
    "a vast table": content_of(b"[" + b" " * LENGTH + b"]" + (LENGTH + 2).to_bytes(8, "little")),
    "no text": content_of(packed_by_hand(b'[["\xff", null]]', b"")),
    "deep": content_of(packed_by_hand(b"[" * 10**5, b"")),
    "a fraction": announcing(*FORM[:-1], 3.0),
    "a negative shape": announcing("w", "float32", [-2], "numpy.ndarray", 3),
    "another type": content_of(SOUND, dtype="float32"),
    "too short": content_of(packed_by_hand([[ARRAYS, [FORM]]], b"ab")),
    "vast": announcing(*FORM[:-1], 10**30),
    "an array twice": content_of(packed_by_hand([[ARRAYS, [FORM, FORM]]], b"abcabc")),
    "a record too many": content_of(packed_by_hand([[ARRAYS, [FORM]], [CONFIG, None]], b"abc")),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_anything_else_is_refused(content: RecordDict) -> None:
    with pytest.raises(BadMessageError):
        unpack(content)
