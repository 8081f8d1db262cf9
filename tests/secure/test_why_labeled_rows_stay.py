"""Negative control: what clients could find out if rows of labeled points were handed out.

Client i holds the influence S[asked, L_i] of its labeled points L_i on all rows that are asked
for, its own rows of Z = S Y, its own labels, and how many labels of each class there are in all.
What others' labels add to its rows is then known to it as well:

    Z[R] - S[R, L_i] Y_i = S[R, L_o] Y_o    for its rows R, with L_o the labeled points of others.

If labeled rows are among those that are asked for and returned, so R = L_i, the right-hand side
has one unknown only: S is symmetric, and S[L_o, L_i] is in what client i was sent. Rows of Y_o are
not negative and add up to 1, and its columns add up to counts that are known, so non-negative least
squares find the labels, here with 10 equations for the 30 labels of each class.

Without those rows, as :func:`~fedul_flwr.propagation.solve.propagation_weights` has it, R
are its unlabeled points U_i. Of S[U_i, L_o] client i holds nothing: columns of L_o are sent to
their owners alone, and rows of L_o to nobody. More than that: labeled points of others could trade
places, labels and all, and client i would hold the very same numbers. Over all such exchanges the
expected share of labels that it guesses right, however it does it, is at most that of the most
frequent class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedul_flwr.propagation.codes import neighbors_by_cosine
from fedul_flwr.propagation.solve import (
    JointGraph,
    label_part,
    normalized_graph,
    one_hot,
    own_rows,
    propagate,
    propagation_columns,
    propagation_weights,
)
from fedul_flwr.secure.rowsums import from_words, open_rows, split_share, sum_shares, to_words
from tests.propagation.conftest import Floats, clusters

Ints = NDArray[np.int64]
CLASSES, CLIENTS, POINTS, LABELS = 5, 4, 60, 10
ATTACKER = 0
SEEDS = range(10)


@dataclass(frozen=True)
class World:
    """Points of all clients; ``labels`` are -1 where they are unknown to the owner, too."""

    features: Floats
    owners: Ints
    labels: Ints

    @property
    def joint(self) -> JointGraph:
        graph = normalized_graph(neighbors_by_cosine(self.features, 10))
        return JointGraph(graph, self.owners, self.labels >= 0)

    @property
    def own(self) -> Ints:
        """L_i, the attacker's labeled points."""
        return np.flatnonzero((self.labels >= 0) & (self.owners == ATTACKER))

    @property
    def others(self) -> Ints:
        """L_o, labeled points of the others."""
        return np.flatnonzero((self.labels >= 0) & (self.owners != ATTACKER))

    @property
    def given(self) -> Floats:
        """Y, with rows of all points."""
        return one_hot(self.labels, CLASSES)

    def exchanged(self, seed: int) -> World:
        """The same where labeled points of others have traded places, labels and all."""
        order = np.arange(len(self.labels))
        order[self.others] = np.random.default_rng(seed).permutation(self.others)
        return World(self.features[order], self.owners, self.labels[order])


def world(seed: int, sizes: tuple[int, ...] = (POINTS,) * CLIENTS, own: int = LABELS) -> World:
    """Clusters dealt to clients at random; the attacker has ``own`` labels, others 10 each."""
    features, classes = clusters(sum(sizes), CLASSES, seed)
    owners = np.repeat(np.arange(CLIENTS), sizes)
    rng, labels = np.random.default_rng(seed), np.full(len(owners), -1)
    for client in range(CLIENTS):
        count = own if client == ATTACKER else LABELS
        chosen = rng.choice(np.flatnonzero(owners == client), count, replace=False)
        labels[chosen] = classes[chosen]
    return World(features, owners, labels)


def solve(known: Floats, sums: Floats, counts: Floats) -> Ints:
    """Classes ``(u,)`` of points whose rows Y are not negative, and as near as can be to:

    ``known @ Y = sums``, rows of Y add up to 1, columns of Y to ``counts``.

    Parameters
    ----------
    known : ``(r, u)``, influence of these points on r rows.
    sums : ``(r, K)``, what their labels add to those rows.
    counts : ``(K,)``, their labels per class.
    """
    points, classes = known.shape[1], sums.shape[1]
    conditions = [
        (np.kron(known, np.eye(classes)), sums.ravel()),
        (np.kron(np.eye(points), np.ones((1, classes))), np.ones(points)),
        (np.kron(np.ones((1, points)), np.eye(classes)), counts),
    ]
    left, right = (np.concatenate(parts) for parts in zip(*conditions, strict=True))
    found = nnls(left, right)[0].reshape(points, classes)
    return np.asarray(found.argmax(axis=1))


@dataclass(frozen=True)
class View:
    """What the attacker is sent, and what others' labels add to its rows.

    Attributes
    ----------
    columns : ``(rows, l_i)``, influence of its labeled points.
    sums : ``(own rows, K)``, its rows of the sum without what its own labels are in them.
    counts : ``(K,)``, others' labels per class.
    """

    columns: Floats
    sums: Floats
    counts: Floats


def view(of: World) -> View:
    """By the protocol as it is: only unlabeled points have rows."""
    found = propagation_weights(of.joint, range(CLIENTS))
    unlabeled, shares, mine = list(found.unlabeled.values()), {}, np.empty(0)
    for client in range(CLIENTS):
        labels = of.labels[of.owners == client]
        given = one_hot(labels[labels >= 0], CLASSES)
        part = label_part(found.columns[client], given, given.sum(axis=0), unlabeled)
        shares[client] = split_share(part, own_rows(unlabeled, client), CLIENTS)
        if client == ATTACKER:
            mine = part[own_rows(unlabeled, client)]
    received = sum_shares({client: share.sent for client, share in shares.items()}, found.rows())
    rows = open_rows(shares[ATTACKER].stored, received[ATTACKER]) - mine
    return View(found.columns[ATTACKER].astype(np.float64), rows[:-1], rows[-1])


def view_with_labeled_rows(of: World) -> View:
    """By a protocol in which all points have rows: ``columns`` of all, ``sums`` of L_i."""
    columns = propagation_columns(of.joint.graph, of.own).astype(np.float32).astype(np.float64)
    rows = propagate(of.joint.graph, of.given, class_scaling=False)[of.own]
    sums = from_words(to_words(rows)) - columns[of.own] @ of.given[of.own]
    return View(columns, sums, of.given[of.others].sum(axis=0))


def shares_right(attack: Callable[[World], Ints]) -> tuple[float, float]:
    """Part of the labels that ``attack`` gets right in all worlds, and of the frequent class."""
    worlds = [world(seed) for seed in SEEDS]
    truths = [of.labels[of.others] for of in worlds]
    right = [attack(of) == truth for of, truth in zip(worlds, truths, strict=True)]
    most = [np.bincount(truth).max() / len(truth) for truth in truths]
    return float(np.mean(right)), float(np.mean(most))


def test_with_labeled_rows_a_client_solves_for_the_labels_of_others() -> None:
    """It is taken to know which rows are those of labeled points."""

    def attack(of: World) -> Ints:
        held = view_with_labeled_rows(of)
        return solve(held.columns[of.others].T, held.sums, held.counts)

    right, most = shares_right(attack)
    assert right > 0.98
    assert most < 0.35


def test_a_client_with_many_labels_need_not_be_told_who_is_labeled() -> None:
    """With an equation for each point of the others, it finds out which have a label, too."""
    right = []
    for seed in SEEDS:
        of = world(seed, (120, 30, 30, 30), own=100)
        held = view_with_labeled_rows(of)
        points = np.flatnonzero(of.owners != ATTACKER)
        known = held.columns[points].T
        found = np.stack([nnls(known, column)[0] for column in held.sums.T], axis=1)
        labels = np.where(found.max(axis=1) > 0.5, found.argmax(axis=1), -1)
        right.append(labels == of.labels[points])
    assert np.mean(right) > 0.98  # two thirds of the points have no label


def drawn_instead(of: World, held: View) -> Floats:
    """Influences that it knows of, at random."""
    draw = np.random.default_rng(len(of.others)).choice
    return np.stack([draw(row, len(of.others)) for row in held.columns[: len(held.sums)]])


def test_without_labeled_rows_it_has_nothing_to_solve_with() -> None:
    """S[U_i, L_o] is missing, and what it puts there does no better than guessing."""

    def attack(of: World) -> Ints:
        held = view(of)
        return solve(drawn_instead(of, held), held.sums, held.counts)

    right, most = shares_right(attack)
    # 300 guesses, right with probability 0.3 at most: a deviation is 0.026.
    assert right < most + 3 * 0.026


def test_with_what_is_missing_the_same_solver_finds_all_labels() -> None:
    """So the server and one client together know all labels: that they do not is assumed."""

    def attack(of: World) -> Ints:
        held = view(of)
        unlabeled = np.flatnonzero((of.labels < 0) & (of.owners == ATTACKER))
        missing = propagation_columns(of.joint.graph, of.others)[unlabeled]
        return solve(missing, held.sums, held.counts)

    right, _ = shares_right(attack)
    assert right > 0.98


def test_labeled_points_of_others_may_trade_places_unseen() -> None:
    """An influence is off by 1e-6 at most, and so a sum over 30 labels by 3e-5."""
    of = world(0)
    held = view(of)
    for seed in range(3):
        other = of.exchanged(seed)
        assert (other.labels[other.others] != of.labels[of.others]).mean() > 0.5
        same = view(other)
        np.testing.assert_allclose(same.columns, held.columns, rtol=0, atol=2e-6)
        np.testing.assert_allclose(same.sums, held.sums, rtol=0, atol=6e-5)
        np.testing.assert_array_equal(same.counts, held.counts)
        # With labeled rows it sees that they did.
        one, two = (view_with_labeled_rows(w).columns for w in (of, other))
        assert np.abs(one - two).max() > 0.01
