"""The least step away from an update of length zero."""

from typing import Any

import numpy as np
import pytest

from fedul_flwr.client_app import avoid_zero_norm
from fedul_flwr.federated.messages import to_arrays, to_record


def stepped(update: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
    record = to_record(update)
    avoid_zero_norm(record, to_record(start))
    return to_arrays(record)


START = {"n": np.array([3]), "w": np.array([[1.0, 2.0]], np.float32), "b": np.zeros(1, np.float32)}


def test_one_weight_moves_to_the_next_number() -> None:
    found = stepped(START, START)
    assert found["w"].dtype == np.float32
    assert found["w"].tolist() == [[1 + 2**-23, 2.0]]
    assert (found["n"].tolist(), found["b"].tolist()) == ([3], [0.0])
    assert START["w"].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("first", [0.0, -0.0, 1e-20, -1e-20, 1.0, -1.0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_length_has_a_square(first: float, kind: type[np.floating[Any]]) -> None:
    start = {"w": np.array([first, 0.0], kind)}
    moved = stepped(start, start)["w"] - start["w"]
    assert moved.dtype == kind
    assert np.linalg.norm(moved) > 0
    assert moved[0] <= max(1.2e-7 * abs(first), 1.01e-18)
    assert moved[1] == 0


@pytest.mark.parametrize("value", [1.5, 1e-18, np.nan, np.inf])
def test_other_updates_stay(value: float) -> None:
    update = {**START, "b": np.array([value], np.float32)}
    np.testing.assert_equal(stepped(update, START), update)
