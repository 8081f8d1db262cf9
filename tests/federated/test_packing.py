"""All arrays of a message in one: what goes in comes out, and anything else is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedul_flwr.engine.in_process import task_identity
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    METRICS,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.wire import PACKED, pack, unpack
from tests.support.refusals import refuses

KINDS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint64")


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with task_identity():
        yield


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
        found = after.array_records[name]
        assert list(found) == list(arrays)
        for key, array in arrays.items():
            one, other = found[key], array
            assert (one.dtype, one.shape, one.stype) == (other.dtype, other.shape, other.stype)
            assert one.data == other.data
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


FORMAT = "its packed arrays are not in the format of this app"
RECORDS = "its packed records are not those that it announces"
SOUND = packed_by_hand([[ARRAYS, [FORM]]], b"abc")


def announcing(*form: Any) -> bytes:
    return packed_by_hand([[ARRAYS, [list(form)]]], b"abc")


BAD: dict[str, tuple[RecordDict, str]] = {
    "nothing": (content_of(b""), FORMAT),
    "truncated": (content_of(SOUND[:-1]), FORMAT),
    "a table longer than all": (content_of(b"abc[]" + (99).to_bytes(8, "little")), FORMAT),
    "a vast table": (
        content_of(b"[" + b" " * (1 << 22) + b"]" + ((1 << 22) + 2).to_bytes(8, "little")),
        FORMAT,
    ),
    "no JSON": (content_of(packed_by_hand(b"{", b"")), FORMAT),
    "no text": (content_of(packed_by_hand(b'[["\xff", null]]', b"")), FORMAT),
    "deep": (content_of(packed_by_hand(b"[" * 10**5, b"")), FORMAT),
    "a fraction": (content_of(announcing(*FORM[:-1], 3.0)), FORMAT),
    "a negative shape": (content_of(announcing("w", "float32", [-2], "numpy.ndarray", 3)), FORMAT),
    "another type": (content_of(SOUND, dtype="float32"), FORMAT),
    "two arrays": (
        RecordDict(
            {
                PACKED: ArrayRecord(
                    {
                        **content_of(SOUND).array_records[PACKED],
                        **records().array_records["variates"],
                    }
                )
            }
        ),
        FORMAT,
    ),
    "too short": (
        content_of(packed_by_hand([[ARRAYS, [FORM]]], b"ab")),
        "its packed arrays are announced as 3 bytes and are 2",
    ),
    "vast": (
        content_of(announcing(*FORM[:-1], 10**30)),
        f"its packed arrays are announced as {10**30} bytes and are 3",
    ),
    "an array twice": (content_of(packed_by_hand([[ARRAYS, [FORM, FORM]]], b"abcabc")), RECORDS),
    "a record twice": (
        content_of(packed_by_hand([[ARRAYS, [FORM]], [ARRAYS, [FORM]]], b"abcabc")),
        RECORDS,
    ),
    "a record too many": (
        content_of(packed_by_hand([[ARRAYS, [FORM]], [CONFIG, None]], b"abc")),
        RECORDS,
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_anything_else_is_refused(content: RecordDict, message: str) -> None:
    with pytest.raises(BadMessageError) as error:
        unpack(content)
    assert str(error.value) == message


def test_an_array_that_is_bad_in_itself_is_refused_where_it_is_decoded() -> None:
    # Announced as it is, 3 bytes of no format: as if it had come alone.
    found = unpack(content_of(SOUND)).array_records[ARRAYS]
    with refuses("message-form", BadMessageError, match="NumPy"):
        to_arrays(found)


def objects(content: RecordDict) -> dict[str, Any]:
    return get_all_nested_objects(Message(content, 1, "train"))


@pytest.mark.parametrize("layers", [1, 50])
def test_a_message_is_few_objects_however_many_arrays_it_has(layers: int) -> None:
    arrays = {f"{layer}": np.full(3, float(layer)) for layer in range(layers)}
    content = RecordDict({CONFIG: ConfigRecord({"server-round": 1}), ARRAYS: to_record(arrays)})
    # Message, its content, two records, the array and its one chunk; else two for each layer.
    assert len(objects(pack(content))) == 6
    assert len(objects(content)) == 4 + 2 * layers
