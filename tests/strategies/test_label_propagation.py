"""XCLP's phases between a server and clients: equal to the whole, whoever holds which points."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.types import Propagated
from fedul_flwr.propagation.central import label_propagation
from fedul_flwr.propagation.codes import encode, hamming
from tests.propagation.conftest import Floats, clusters
from tests.support.xclp_parties import BITS, SEED, Parties, split


def blurred(size: int) -> tuple[Floats, NDArray[np.int64]]:
    """Clusters that run into each other, so that labels compete."""
    features, classes = clusters(size)
    noise = np.random.default_rng(1).normal(size=features.shape)
    return features + 1.2 * noise, classes.astype(np.int64)


SIZE = 400
FEATURES, CLASSES = blurred(SIZE)
LABELS: NDArray[np.int64] = np.where(np.arange(SIZE) % 11 == 3, CLASSES, -1)


def together(found: dict[int, Propagated]) -> Propagated:
    """Of all clients' points, client after client."""
    parts = [found[client] for client in sorted(found)]
    return Propagated(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def central(labels: NDArray[np.int64] = LABELS, features: Floats = FEATURES, **more: Any) -> Any:
    return label_propagation(features, labels, num_classes=5, num_bits=BITS, seed=SEED, **more)


def assert_agree(found: Propagated, expected: Propagated, asked: NDArray[np.bool_]) -> None:
    """Equal where ``asked``; elsewhere a client is told nothing."""
    np.testing.assert_array_equal(found.labels[asked], expected.labels[asked])
    np.testing.assert_allclose(found.confidence[asked], expected.confidence[asked], 0, 1e-6)
    assert (found.labels[~asked] == -1).all()
    assert not found.confidence[~asked].any()


SIZES = {
    "one": [400],
    "two": [150, 250],
    "five": [80] * 5,
    "unequal": [1, 250, 3, 146],
    "one without points": [200, 0, 200],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "text": {"recipe": "paper"},
    "others": {"k": 4, "alpha": 0.5, "reweigh": False},
    "all are neighbors": {"k": 1000},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_equals_propagation_in_one_place(sizes: list[int], options: dict[str, Any]) -> None:
    table = {f"xclp.{key}": value for key, value in options.items()}
    parties = Parties(**split(FEATURES, LABELS, sizes), options=table)
    found = parties.propagate()
    assert [len(found[client].labels) for client in range(len(sizes))] == sizes
    text = {"power": 1.0, "class_scaling": False}
    assert_agree(together(found), central(**(text if "recipe" in options else options)), LABELS < 0)


def test_one_client_equals_label_propagation_within_it() -> None:
    # Reweighing too: it goes by a client's own rows, which here are all rows.
    options = {"xclp.reweigh": True}
    parties = Parties(features=[FEATURES], labels=[LABELS], options=options)
    found = parties.propagate()[0]
    assert_agree(found, central(reweigh=True), LABELS < 0)
    assert (found.labels != central().labels)[LABELS < 0].any()


def tied(chosen: NDArray[np.int64], k: int) -> NDArray[np.bool_]:
    """Points among those ``chosen`` whose k-th neighbor is no nearer than the next one."""
    codes = encode(FEATURES[chosen], SEED, BITS)
    distances = hamming(codes, codes).astype(np.int64)
    np.fill_diagonal(distances, BITS)
    ordered = np.sort(distances, axis=1)
    # From L / 2 on there is no neighbor, and so no tie.
    found: NDArray[np.bool_] = (ordered[:, k - 1] == ordered[:, k]) & (2 * ordered[:, k] < BITS)
    return found


def test_permutations_of_points_and_of_clients_change_nothing() -> None:
    options = {"xclp.k": 3}
    chosen = np.arange(200)
    while (odd := tied(chosen, 3)).any():  # leaving out a point makes other neighbors
        chosen = np.delete(chosen, np.flatnonzero(odd)[0])
    assert len(chosen) > 60
    size = len(chosen) // 4
    sizes = [size, 2 * size, len(chosen) - 3 * size]
    parts = split(FEATURES[chosen], LABELS[chosen], sizes)
    straight = Parties(**parts, options=options).propagate()
    rng = np.random.default_rng(0)
    within = [rng.permutation(size) for size in sizes]
    clients = [2, 0, 1]
    turned = Parties(
        [parts["features"][client][within[client]] for client in clients],
        [parts["labels"][client][within[client]] for client in clients],
        options,
    ).propagate()
    assert any((found.labels >= 0).any() for found in straight.values())
    for position, client in enumerate(clients):
        labels, confidence = (part[within[client]] for part in straight[client])
        np.testing.assert_array_equal(turned[position].labels, labels)
        np.testing.assert_allclose(turned[position].confidence, confidence, 0, 1e-6)


def test_a_withheld_client_is_labeled_by_the_others() -> None:
    sizes = [100, 140, 160]
    parts = split(FEATURES, LABELS, sizes)
    found = Parties(**parts).propagate(withheld=1)
    mine = np.repeat([0, 1, 2], sizes) == 1
    expected = central(np.where(mine, -1, LABELS))
    assert_agree(together(found), expected, (LABELS < 0) | mine)
    # Its own labels have no part in it, not even by their number.
    wrong = [labels.copy() for labels in parts["labels"]]
    wrong[1] = np.where(wrong[1] >= 0, (wrong[1] + 1) % 5, -1)
    flipped = Parties(parts["features"], wrong).propagate(withheld=1)
    for one, other in zip(together(found), together(flipped), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (together(Parties(parts["features"], wrong).propagate()).labels[mine] >= 0).any()


# Edges


def test_points_without_a_direction_are_nobodys_neighbors() -> None:
    # Client 0: a labeled and an unlabeled zero vector; they are not in the graph.
    features = FEATURES.copy()
    labels = LABELS.copy()
    features[[0, 1]] = 0
    labels[[0, 1]] = [2, -1]
    found = Parties(**split(features, labels, [100, 300])).propagate()
    assert (found[0].labels[1], found[0].confidence[1]) == (-1, 0)
    # The label of the point outside the graph counts in its class, as in one place.
    assert_agree(together(found), central(labels, features), labels < 0)
    assert (central(labels, features).confidence != central(features=features).confidence)[
        labels < 0
    ].any()


def test_isolated_points_and_duplicates() -> None:
    # 0 and 1 are the same; 2 is alone: orthogonal or opposite to all. 3 is near 0, at another.
    axis = np.eye(3)
    features = [np.array([axis[0], axis[0], -axis[0]]), np.array([axis[0] + 0.1 * axis[1]])]
    labels = [np.array([1, -1, -1]), np.array([-1])]
    found = Parties(features, labels, {"xclp.k": 1}).propagate()
    assert found[0].labels.tolist() == [-1, 1, -1]
    assert found[0].confidence.tolist() == [0, 1, 0]
    assert found[1].labels.tolist() == [1]
