"""Updates: bytes by hand, the smallest form, both ends in step, and messages that are refused."""

from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedul_flwr.arrays import Arrays
from fedul_flwr.federated.messages import payload_bytes, to_record
from fedul_flwr.strategies.fedmatch_parts import HEADER, Difference, decode, encode


def same_bits(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(
        array.dtype == other[name].dtype
        and array.shape == other[name].shape
        and array.tobytes() == other[name].tobytes()
        for name, array in one.items()
    )


def changed_at(positions: Any, size: int, dtype: str = "f4") -> Difference:
    """The update of zeros, of which some become ones."""
    new = np.zeros(size, dtype)
    new[positions] = 1
    return encode({"w": new}, {"w": np.zeros(size, dtype)}, 0)


def test_indices_by_hand() -> None:
    held = {"w": np.zeros((10, 10), np.float32), "b": np.ones(3, np.float32)}
    new = {name: array.copy() for name, array in held.items()}
    new["w"][0, 3], new["w"][7, 0] = 1, -2
    update = encode(new, held, 0)
    assert {name: array.tobytes().hex(" ", 4) for name, array in update.record.items()} == {
        "w/indices": "03000000 46000000",
        "w/values": "0000803f 000000c0",
    }
    assert update.changed == 2
    assert same_bits(update.stored, new)
    assert same_bits(decode(update.record, held), new)


def test_mask_by_hand() -> None:
    """Of 64 values three: 8 bytes of mask, indices would be 12."""
    update = changed_at([0, 9, 63], 64)
    assert set(update.record) == {"w/mask", "w/values"}
    assert update.record["w/mask"].tobytes().hex() == "8040000000000001"
    assert update.record["w/values"].tolist() == [1, 1, 1]


def test_the_threshold_by_hand() -> None:
    half = 0.5
    pairs = [  # new, held, what both keep
        (half, 0.0, half),
        (-half, 0.0, -half),
        (0.49, 0.0, 0.0),
        (1.49, 1.0, 1.0),
        (0.0, -0.0, -0.0),
        (np.inf, np.inf, np.inf),
        (-np.inf, np.inf, -np.inf),
        (np.nan, 1.0, np.nan),
        (1.0, np.nan, 1.0),
        (3e38, -3e38, 3e38),  # their difference is too large for the type
    ]
    new, held, kept = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    update = encode({"w": new}, {"w": held}, half)
    assert same_bits(update.stored, {"w": kept})
    assert update.changed == 6
    assert same_bits(encode({"w": kept}, {"w": held}, half).record, update.record)


@pytest.mark.parametrize(
    ("dtype", "last_mask"),
    # Indices take 4c bytes, a mask of 1000 values 125: indices up to 31. A mask takes 253 + 4c with
    # its header, a whole array 4000: masks up to 936. In float64, 253 + 8c and 8000: up to 968.
    [("f4", 936), ("f8", 968)],
)
def test_the_smallest_form_travels(dtype: str, last_mask: int) -> None:
    forms = {
        0: set(),
        1: {"w/indices", "w/values"},
        31: {"w/indices", "w/values"},
        32: {"w/mask", "w/values"},
        last_mask: {"w/mask", "w/values"},
        last_mask + 1: {"w"},
        1000: {"w"},
    }
    for count, names in forms.items():
        update = changed_at(slice(count), 1000, dtype)
        assert set(update.record) == names
        assert update.changed == count
        size = np.dtype(dtype).itemsize
        other_forms = [
            2 * HEADER + (4 + size) * count,
            2 * HEADER + 125 + size * count,
            HEADER + size * 1000,
        ]
        sent = payload_bytes(RecordDict({"sigma": to_record(update.record)}))
        assert sent == (min(other_forms) if count else 0)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Arrays, Arrays, float]:
    """Arrays of one form: some values equal, some close, any bits."""
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8"])))
    shape = draw(st.one_of(st.just(()), st.just((0, 3)), array_shapes(max_dims=3, max_side=12)))
    floats = st.floats(width=8 * dtype.itemsize)  # type: ignore[arg-type]
    held = draw(arrays(dtype, shape, elements=floats))
    other = draw(arrays(dtype, shape, elements=floats))
    choice = draw(arrays(np.int8, shape, elements=st.integers(0, 3)))
    with np.errstate(all="ignore"):
        new = np.select([choice == 0, choice == 1], [other, held + dtype.type(1e-4)], held)
    return {"w": new}, {"w": held}, draw(st.sampled_from([0.0, 5e-5, 0.5, np.inf]))


@hypothesis_settings(max_examples=200, deadline=None)
@given(pairs())
def test_any_arrays_make_the_round_trip(case: tuple[Arrays, Arrays, float]) -> None:
    new, held, threshold = case
    update = encode(new, held, threshold)
    assert same_bits(decode(update.record, held), update.stored)
    sent = 0
    for one, before, kept in zip(
        *(map(np.ravel, (new["w"], held["w"], update.stored["w"]))), strict=True
    ):
        with np.errstate(all="ignore"):
            close = threshold > 0 and abs(one - before) < before.dtype.type(threshold)
        differs = one.tobytes() != before.tobytes() and not close
        assert kept.tobytes() == (one if differs else before).tobytes()
        sent += differs
    assert update.changed == sent
    if threshold == 0:
        assert same_bits(update.stored, new)
    # The bound of the docstring, in bytes: the share, a bit per value, a byte and two headers.
    bound = sent * new["w"].itemsize + new["w"].size / 8 + 1 + 2 * HEADER
    assert payload_bytes(RecordDict({"w": to_record(update.record)})) <= bound


INDEX = np.array([1, 2], np.uint32)
VALUE = np.array([1, 2], np.float32)
MASK = np.packbits([0, 1, 1, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    "record",
    [
        {"v": VALUE},
        {"w": np.zeros(10, np.float32)},
        {"w": np.zeros((2, 5), np.float32), "w/mask": MASK},
        {"w/indices": INDEX, "w/mask": MASK, "w/values": VALUE},
        {"w/indices": INDEX, "w/values": VALUE[:1]},
        {"w/indices": INDEX, "w/values": VALUE.astype(float)},
        {"w/indices": INDEX + 8, "w/values": VALUE},
        {"w/indices": INDEX[::-1], "w/values": VALUE},
        {"w/mask": MASK[:1], "w/values": VALUE},
    ],
)
def test_messages_that_do_not_fit(record: Arrays) -> None:
    held = {"w": np.zeros((2, 5), np.float32), "b": np.zeros(3)}
    with pytest.raises(ValueError, match=r"'[vw]|must increase"):
        decode(record, held)
