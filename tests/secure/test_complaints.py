"""Who leaves when messages between clients do not go together, by hand."""

from __future__ import annotations

import pytest

from fedul_flwr.secure.messages import exclude
from fedul_flwr.secure.similarity import ExcludedClientsError

FIVE = (0, 1, 2, 3, 4)
CASES: dict[str, tuple[list[tuple[int, int]], set[int], set[int]]] = {
    "all others name one": ([(0, 3), (1, 3), (2, 3), (4, 3)], {3}, set()),
    "a pair counts once, whoever says it": ([(0, 3), (3, 0), (0, 3), (1, 3)], {3}, set()),
    "of two that contradict nobody else both leave": ([(1, 4)], {1, 4}, {1, 4}),
    "the liar first, then a pair that is left": (
        [(0, 3), (1, 3), (2, 3), (1, 2)],
        {1, 2, 3},
        {1, 2},
    ),
    "two liars, one after the other": ([(3, 0), (3, 1), (3, 2), (4, 0), (4, 1)], {3, 4}, set()),
    "two pairs alike": ([(0, 1), (2, 3)], {0, 1, 2, 3}, {0, 1, 2, 3}),
    "three in a circle": ([(0, 1), (1, 2), (2, 0)], {0, 1, 2}, {0, 1, 2}),
    "who contradicts itself leaves first, with all about it": (
        [(2, 2), (2, 0), (2, 1)],
        {2},
        set(),
    ),
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
