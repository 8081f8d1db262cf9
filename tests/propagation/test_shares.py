"""Propagation in parts: hand-made rows, and sums of shares that equal the whole."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.propagation.solve import (
    Influences,
    JointGraph,
    label_part,
    one_hot,
    own_rows,
    propagate,
    propagation_weights,
    scores_of,
)
from fedul_flwr.secure.rowsums import open_rows, split_share, sum_shares
from tests.propagation.conftest import Floats, cluster_graph, clusters

SIZE = 240
CLASSES = clusters(SIZE)[1].astype(np.int64)
LABELS: NDArray[np.int64] = np.where(np.arange(SIZE) % 9 == 4, CLASSES, -1)
"""Every ninth point is labeled."""


def joint(owners: NDArray[np.int64]) -> JointGraph:
    return JointGraph(cluster_graph(SIZE), owners, LABELS >= 0)


def summed(
    found: Influences, owners: NDArray[np.int64], *, withheld: int | None = None
) -> dict[int, Floats]:
    """Rows of the sum that each participant ends with."""
    unlabeled, clients = list(found.unlabeled.values()), list(found.unlabeled)
    shares = {}
    for position, client in enumerate(clients):
        labels = LABELS[owners == client]
        given = one_hot(labels[labels >= 0] if client != withheld else [], 5)
        part = label_part(found.columns[client], given, given.sum(axis=0), unlabeled)
        shares[client] = split_share(part, own_rows(unlabeled, position), len(clients))
    sums = sum_shares({client: share.sent for client, share in shares.items()}, found.rows())
    return {client: open_rows(shares[client].stored, sums[client]) for client in clients}


# Points 0 to 3 have no label, and 104 is a client's only point; its label is unknown, too.
PARTITIONS: dict[str, list[tuple[int, int]]] = {
    "one client": [(0, SIZE)],
    "equal": [(0, 80), (1, 80), (2, 80)],
    "unequal, unsorted, without labels": [(7, 4), (3, 100), (9, 1), (0, 135)],
}


@pytest.mark.parametrize("class_scaling", [True, False])
@pytest.mark.parametrize("parts", PARTITIONS.values(), ids=PARTITIONS)
def test_shares_add_up_to_the_whole(parts: list[tuple[int, int]], class_scaling: bool) -> None:
    owners = np.repeat(*np.array(parts).T)
    found = propagation_weights(joint(owners), [client for client, _ in parts])
    whole = propagate(cluster_graph(SIZE), one_hot(LABELS, 5), class_scaling=class_scaling)
    for client, rows in summed(found, owners).items():
        expected = whole[(owners == client) & (LABELS < 0)]
        assert len(rows) == len(expected) + 1
        np.testing.assert_array_equal(rows[-1], one_hot(LABELS, 5).sum(axis=0))
        scores = scores_of(rows, class_scaling=class_scaling)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


def test_a_withheld_client_is_as_if_it_had_no_labels() -> None:
    owners = np.repeat([0, 1, 2], 80)
    found = propagation_weights(joint(owners), [0, 1, 2], withheld=1)
    assert found.unlabeled[1] == 80
    assert found.columns[1].shape[1] == 0
    whole = propagate(cluster_graph(SIZE), one_hot(np.where(owners == 1, -1, LABELS), 5))
    rows = summed(found, owners, withheld=1)
    for client in range(3):
        asked = (owners == client) & ((LABELS < 0) | (client == 1))
        np.testing.assert_allclose(scores_of(rows[client]), whole[asked], rtol=0, atol=1e-6)


def test_who_drops_out_takes_its_labels_and_leaves_its_points() -> None:
    owners = np.repeat([0, 1, 2], 80)
    found = propagation_weights(joint(owners), [0, 2])
    assert list(found.unlabeled) == list(found.columns) == [0, 2]
    # The whole graph, without the labels of client 1.
    whole = propagate(cluster_graph(SIZE), one_hot(np.where(owners == 1, -1, LABELS), 5))
    rows = summed(found, owners)
    for client in (0, 2):
        expected = whole[(owners == client) & (LABELS < 0)]
        np.testing.assert_allclose(scores_of(rows[client]), expected, rtol=0, atol=1e-6)
    # A graph without those points gives something else.
    left = np.flatnonzero(owners != 1)
    smaller = propagate(cluster_graph(SIZE)[left][:, left], one_hot(LABELS[left], 5))
    assert np.abs(smaller[:80] - whole[:80]).max() > 1e-3


def test_a_part_by_hand() -> None:
    # Two labeled points of classes 1 and 0, five rows of influence; three labels in all.
    columns = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]])
    part = label_part(columns, np.array([[0.0, 1], [1, 0]]), np.array([1.0, 2]), [2, 0, 3])
    assert part.tolist() == [
        *([10, 1], [20, 2], [1, 2]),
        [1, 2],
        *([30, 3], [40, 4], [50, 5], [1, 2]),
    ]


def test_scores_by_hand() -> None:
    # 4 and 2 labels, none of class 2; a number below zero is rounding.
    rows = np.array([[2.0, 3, 1], [-1e-12, 1, 0], [4, 2, 0]])
    assert scores_of(rows).tolist() == [[0.5, 1.5, 1], [0, 0.5, 0]]
    assert scores_of(rows, class_scaling=False).tolist() == [[2, 3, 1], [0, 1, 0]]
    assert scores_of(rows[-1:]).shape == (0, 3)
