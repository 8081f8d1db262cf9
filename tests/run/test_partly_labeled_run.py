"""A whole run on partly labeled data: what its clients see, keep, and what a later run reuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.given_labels_method import GIVEN_METHOD, SEEN
from tests.support.refusals import refuses
from tests.support.runs import assert_same_arrays, last_model, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {"method": GIVEN_METHOD, "model": "mlp", "num_rounds": 1, "local_epochs": 1}
LABELS: dict[str, Any] = {"labels.total": 60, "labels.new-fraction": 0.1}


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


def seen() -> list[tuple[Any, ...]]:
    found = [(data.points, data.labels.copy(), data.new) for _, data in sorted(SEEN.items())]
    SEEN.clear()
    return found


def assert_same(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    assert len(one) == len(other) == 3
    for a, b in zip(one, other, strict=True):
        for part, expected in zip(a, b, strict=True):
            np.testing.assert_array_equal(part, expected)


def test_a_later_run_uses_the_same_split(settings: Settings) -> None:
    first = train(settings(**QUICK, **LABELS, partition="dirichlet", server_fraction=0.1), 3)
    before = seen()
    assert [int((labels >= 0).sum()) for _, labels, _ in before] == [20, 20, 20]
    options = {**QUICK, "labels.split": str(first / "split.npz")}
    again = train(settings(**options), 3)
    assert_same(seen(), before)
    assert_same_arrays(last_model(first), last_model(again))
    one, two = (path / "split.npz" for path in (first, again))
    assert one.read_bytes() == two.read_bytes()
    train(settings(**options, **{"labels.without-client": 1}), 3)
    before[1][1][:] = -1
    assert_same(seen(), before)


# Clients with their own data


def write_owners(root: Path) -> Path:
    """Two owners of twelve images each, the first with labels for three of them."""
    for owner in range(2):
        folder = root / f"owner{owner}"
        folder.mkdir(parents=True)
        pixels = np.random.default_rng(owner).integers(0, 256, (12, 8, 8), dtype=np.uint8)
        np.savez(folder / "images.npz", images=pixels)
    (root / "owner0" / "labels.csv").write_text("name,label\n3,b\n0,a\n11,b\n")
    return root


def test_owners_bring_their_labels(settings: Settings, tmp_path: Path) -> None:
    own = {"client_data": str(write_owners(tmp_path / "owners")), "dataset": "none"}
    own |= {"class_names": "a,b", "input_shape": "8x8x1"}
    directory = train(settings(**QUICK, **own), 2)
    (_, first, new), (_, second, _) = seen()
    assert sorted(first.tolist()) == [-1] * 9 + [0, 1, 1]  # of rows 0, 3 and 11
    assert second.tolist() == [-1] * 12
    assert not new.any()
    assert not (directory / "split.npz").exists()
    clients = json.loads((directory / "federation.json").read_text())["clients"]
    assert [client["num_points"] for client in clients] == [12, 12]
    assert all(client["labeled_counts"] is None for client in clients)
    (tmp_path / "owners" / "owner1" / "labels.csv").write_text("name,label\n12,a\n")
    with refuses("client-failed"):
        train(settings(**QUICK, **own), 2)
