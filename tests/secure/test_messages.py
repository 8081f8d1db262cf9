"""Arrays of messages, refused by name and without a value; who leaves when messages disagree."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul_flwr.arrays import Bytes
from fedul_flwr.secure.messages import checked_array, exclude, judge
from fedul_flwr.secure.similarity import ExcludedClientsError
from tests.support.refusals import refuses

ORIGIN = "Client 3 sent in step 'offer'"


@pytest.mark.parametrize(
    "array", [np.zeros((2, 3), np.uint16), np.zeros((0, 3), np.int64), np.array(7, np.int64)]
)
def test_an_array_of_the_right_form_is_given_as_it_is(array: Bytes) -> None:
    message = {"sums": array, "else": np.zeros(1)}
    assert checked_array(ORIGIN, message, "sums", array.dtype, array.shape) is array


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ({}, "nothing"),
        ({"sums": np.full((2, 3), 41, np.int16)}, "int16 (2, 3)"),
        ({"sums": np.full((2, 3), 41, ">u2")}, ">u2 (2, 3)"),
        ({"sums": np.full((3, 2), 41, np.uint16)}, "uint16 (3, 2)"),
        ({"sums": np.array(41, np.uint16)}, "uint16 ()"),
    ],
)
def test_any_other_is_refused(message: dict[str, Bytes], form: str) -> None:
    with refuses("message-form", match=re.escape(f"{ORIGIN} {form} as 'sums'")):
        checked_array(ORIGIN, message, "sums", np.uint16, (2, 3))


FIVE = (0, 1, 2, 3, 4)
CASES: dict[str, tuple[list[tuple[int, int]], set[int], set[int]]] = {
    "all others name one": ([(0, 3), (1, 3), (2, 3), (4, 3)], {3}, set()),
    "a pair counts once, whoever says it": ([(0, 3), (3, 0), (0, 3), (1, 3)], {3}, set()),
    "of two that contradict nobody else both leave": ([(1, 4)], {1, 4}, {1, 4}),
    "the liar first, then a pair": ([(0, 3), (1, 3), (2, 3), (1, 2)], {1, 2, 3}, {1, 2}),
    "two liars, one after the other": ([(3, 0), (3, 1), (3, 2), (4, 0), (4, 1)], {3, 4}, set()),
    "two pairs alike": ([(0, 1), (2, 3)], {0, 1, 2, 3}, {0, 1, 2, 3}),
    "three in a circle": ([(0, 1), (1, 2), (2, 0)], {0, 1, 2}, set()),
    "who contradicts itself goes first": ([(2, 2), (2, 0), (2, 1)], {2}, set()),
    "with one who has left": ([(0, 9)], set(), set()),
}


@pytest.mark.parametrize(("pairs", "excluded", "tied"), CASES.values(), ids=CASES)
def test_who_leaves(pairs: list[tuple[int, int]], excluded: set[int], tied: set[int]) -> None:
    with pytest.raises(ExcludedClientsError) as error:
        exclude(pairs, reversed(FIVE))
    assert {*error.value.excluded} == excluded
    assert error.value.tied == tied
    assert error.value.left == tuple(client for client in FIVE if client not in excluded)


Directed = list[tuple[int, int]]


@st.composite
def lies(draw: st.DrawFn) -> tuple[int, set[int], Directed]:
    """How many clients there are, those who lie, fewer than a third, and complaints. Honest clients
    complain about liars alone, who may have garbled what they sent."""
    count = draw(st.integers(4, 14))
    liars = draw(st.sets(st.integers(0, count - 1), max_size=(count - 1) // 3))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b and {a, b} & liars]
    return count, liars, draw(st.lists(st.sampled_from(pairs))) if pairs else []


@given(lies())
def test_given_fewer_liars_than_a_third_then_no_honest_client_is_at_fault(
    told: tuple[int, set[int], Directed],
) -> None:
    count, liars, complaints = told
    guilty, pairs = judge(complaints, range(count))
    assert guilty.keys() <= liars
    assert all({*pair} & liars for pair in pairs)
    lost = Counter(client for pair in pairs for client in pair)
    assert max(lost.values(), default=0) <= max(1, (count - len(guilty) - 1) // 3)


@given(lies())
def test_given_liars_when_points_are_compared_then_an_honest_client_leaves_with_one_of_them_alone(
    told: tuple[int, set[int], Directed],
) -> None:
    count, liars, complaints = told
    if not complaints:
        return
    with pytest.raises(ExcludedClientsError) as error:
        exclude(complaints, range(count))
    gone = {*error.value.excluded}
    for client in gone - liars:
        assert any({one, other} - {client} <= gone & liars for one, other in complaints)
    assert gone & liars


@pytest.mark.parametrize(("count", "liars"), [(8, (6, 7)), (10, (7, 8, 9)), (10, (8, 9))])
def test_given_liars_that_name_one_honest_client_after_the_other_then_they_leave_first(
    count: int, liars: tuple[int, ...]
) -> None:
    with pytest.raises(ExcludedClientsError) as error:
        exclude([(liar, 0) for liar in liars], range(count))
    assert error.value.left == tuple(range(1, count - len(liars)))
