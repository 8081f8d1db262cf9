"""Who leaves when messages between clients do not go together, by hand."""

from __future__ import annotations

import pytest

from fedul_flwr.secure.messages import exclude
from fedul_flwr.secure.similarity import ExcludedClientsError

FIVE = (0, 1, 2, 3, 4)
ALONE = "its messages and those of {} others do not go together"
TIED = (
    "its messages and those of client(s) {} do not go together, "
    "and nobody can tell whose fault it is"
)
ITSELF = "what it has sent the server does not go together"

CASES: dict[str, tuple[list[tuple[int, int]], dict[int, str], set[int]]] = {
    "all others name one": ([(0, 3), (1, 3), (2, 3), (4, 3)], {3: ALONE.format(4)}, set()),
    "a pair counts once, whoever says it": (
        [(0, 3), (3, 0), (0, 3), (1, 3)],
        {3: ALONE.format(2)},
        set(),
    ),
    "of two that contradict nobody else both leave": (
        [(1, 4)],
        {1: TIED.format("4"), 4: TIED.format("1")},
        {1, 4},
    ),
    "the liar first, then a pair that is left": (
        [(0, 3), (1, 3), (2, 3), (1, 2)],
        {3: ALONE.format(3), 1: TIED.format("2"), 2: TIED.format("1")},
        {1, 2},
    ),
    "two liars, one after the other": (
        [(3, 0), (3, 1), (3, 2), (4, 0), (4, 1)],
        {3: ALONE.format(3), 4: ALONE.format(2)},
        set(),
    ),
    "two pairs alike": (
        [(0, 1), (2, 3)],
        {0: TIED.format("1"), 1: TIED.format("0"), 2: TIED.format("3"), 3: TIED.format("2")},
        {0, 1, 2, 3},
    ),
    "three in a circle": (
        [(0, 1), (1, 2), (2, 0)],
        {0: TIED.format("1, 2"), 1: TIED.format("0, 2"), 2: TIED.format("0, 1")},
        {0, 1, 2},
    ),
    "who contradicts itself leaves first, with all that is about it": (
        [(2, 2), (2, 0), (2, 1)],
        {2: ITSELF},
        set(),
    ),
    "with one who has left": ([(0, 9)], {}, set()),
}


@pytest.mark.parametrize(("pairs", "excluded", "tied"), CASES.values(), ids=CASES)
def test_who_leaves(pairs: list[tuple[int, int]], excluded: dict[int, str], tied: set[int]) -> None:
    with pytest.raises(ExcludedClientsError) as error:
        exclude(pairs, reversed(FIVE))
    assert error.value.excluded == excluded
    assert error.value.tied == tied
    assert error.value.left == tuple(client for client in FIVE if client not in excluded)


def test_without_contradictions_nobody_leaves() -> None:
    exclude([], FIVE)
