"""Arrays of messages, refused by name and without a value; who leaves when messages disagree."""

import re

import numpy as np
import pytest

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.messages import checked_array, exclude
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
    "three in a circle": ([(0, 1), (1, 2), (2, 0)], {0, 1, 2}, {0, 1, 2}),
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


def test_without_contradictions_nobody_leaves() -> None:
    exclude([], FIVE)
