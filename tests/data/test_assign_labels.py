"""Who is given how many labels, and of which points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedul_flwr.config.method_settings import LabelSettings
from fedul_flwr.data.label_split import assign_labels_to_clients, label_shares
from fedul_flwr.data.types import Ints
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses


def options(**values: Any) -> LabelSettings:
    return LabelSettings.parse({key.replace("_", "-"): value for key, value in values.items()})


def counts(labels: Ints, num_classes: int) -> list[int]:
    found: list[int] = np.bincount(labels[labels >= 0], minlength=num_classes).tolist()
    return found


@pytest.mark.parametrize(
    ("part", "clients"), [(1.0, 10), (0.5, 5), (0.25, 2), (0.34, 3), (0.001, 1)]
)
def test_some_clients_have_labels(part: float, clients: int) -> None:
    shares = label_shares(10, options(total=60, labeled_clients=part), seed=0)
    assert sorted(shares)[-clients:] == [60 // clients] * clients
    assert (shares > 0).sum() == clients


def test_who_has_labels_is_drawn() -> None:
    half = options(total=50, labeled_clients=0.5)
    found = np.stack([label_shares(10, half, seed) > 0 for seed in range(400)])
    # Each client in half of the draws; 0.1 is four deviations.
    np.testing.assert_allclose(found.mean(axis=0), 0.5, atol=0.1)
    fewer = label_shares(10, options(total=50, labeled_clients=0.3), seed=7) > 0
    assert (fewer <= found[7]).all()


def test_balanced_labels_by_hand() -> None:
    # Classes of 1, 4 and 9 points: 9 labels are 1 + 4 + 4, for the first two have no more.
    truth = np.repeat([0, 1, 2], [1, 4, 9])
    (labels,), (new,) = assign_labels_to_clients([truth], options(total=9), seed=3)
    assert counts(labels, 3) == [1, 4, 4]
    assert not new.any()
    (labels,), _ = assign_labels_to_clients([truth], options(total=3), seed=3)
    assert counts(labels, 3) == [1, 1, 1]
    (labels,), _ = assign_labels_to_clients([truth], options(total=14), seed=3)
    np.testing.assert_array_equal(labels, truth)


def test_remainders_favor_no_class() -> None:
    clients = [np.repeat(np.arange(4), 10)] * 300
    given_labels, _ = assign_labels_to_clients(clients, options(total=300 * 6), seed=0)
    assert {tuple(sorted(counts(labels, 4))) for labels in given_labels} == {(1, 1, 2, 2)}
    total = np.sum([counts(labels, 4) for labels in given_labels], axis=0)
    # 1.5 per client; one deviation of the sum is 300**0.5 / 2 = 8.7.
    np.testing.assert_allclose(total, 450, atol=35)


def test_new_points_do_not_depend_on_labels() -> None:
    truth = np.repeat([0, 1], 10)
    _, few = assign_labels_to_clients([truth], options(total=2, new_fraction=0.5), seed=0)
    _, many = assign_labels_to_clients([truth[::-1]], options(total=9, new_fraction=0.5), seed=0)
    np.testing.assert_array_equal(few, many)


def test_points_without_truth_get_no_label() -> None:
    truth = np.array([-1, 0, -1, 1, -1, 0])
    (labels,), _ = assign_labels_to_clients([truth], options(total=3), seed=0)
    np.testing.assert_array_equal(labels, truth)
    with refuses("too-few-points"):
        assign_labels_to_clients([truth], options(total=4), seed=0)


def test_given_classes_per_client_then_labels_alone_are_of_so_many_classes() -> None:
    """XCLP's Non-IID: each class is at k of K clients, as often in each, and points stay."""
    truth = [np.repeat(np.arange(10), 12)] * 20
    found, _ = assign_labels_to_clients(truth, options(total=200, classes_per_client=5), seed=3)
    table = np.array([counts(labels, 10) for labels in found])
    assert set(table.ravel()) == {0, 2}  # ten labels a client: two of each of five classes
    assert ((table > 0).sum(axis=1) == 5).all()
    assert (table.sum(axis=0) == 20).all()
    # Half of the clients have labels: again each class equally often.
    half, _ = assign_labels_to_clients(
        truth, options(total=200, classes_per_client=5, labeled_clients=0.5), seed=3
    )
    of_half = np.array([counts(labels, 10) for labels in half])
    assert sorted(of_half.sum(axis=1)) == [0] * 10 + [20] * 10
    assert (of_half.sum(axis=0) == 20).all()
    # Rotations: one client's classes are another's, moved by one.
    kinds = {tuple(np.flatnonzero(row)) for row in table}
    assert {tuple(np.sort((np.array(kind) + 1) % 10)) for kind in kinds} == kinds
    other, _ = assign_labels_to_clients(truth, options(total=200, classes_per_client=5), seed=4)
    assert [counts(labels, 10) for labels in other] != table.tolist()


def test_given_more_classes_or_labels_than_there_are_then_the_split_is_refused() -> None:
    truth = [np.repeat(np.arange(4), 5)] * 4
    with refuses("setting-unfit-for-data", setting="labels.classes-per-client"):
        assign_labels_to_clients(truth, options(total=4, classes_per_client=5), seed=0)
    with refuses("too-few-points"):
        assign_labels_to_clients(truth, options(total=44, classes_per_client=2), seed=0)
    with refuses("too-few-points"):
        assign_labels_to_clients(truth, options(fraction=0.6, classes_per_client=2), seed=0)


TRUTH = st.lists(
    st.lists(st.integers(-1, 3), min_size=12, max_size=30).map(np.array), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(
    truth=TRUTH,
    total=st.integers(0, 12),
    part=st.sampled_from([0.3, 0.7, 1.0]),
    new_fraction=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9),
)
def test_what_always_holds(
    truth: list[Ints], total: int, part: float, new_fraction: float, seed: int
) -> None:
    table: dict[str, Any] = {"labeled_clients": part, "new_fraction": new_fraction}
    try:
        found, new = assign_labels_to_clients(truth, options(total=total, **table), seed)
    except UserError:  # shares of `total` labels that some client cannot have
        shares = label_shares(len(truth), options(total=total, **table), seed)
        held = [(labels >= 0).sum() for labels in truth]
        most_new = [round(new_fraction * len(labels)) for labels in truth]
        assert (shares > np.array(held) - most_new).any()
        return
    shares = label_shares(len(truth), options(total=total, **table), seed)
    assert shares.sum() == total
    for labels, known, share, kept in zip(found, truth, shares, new, strict=True):
        shown = labels != -1
        assert shown.sum() == share
        np.testing.assert_array_equal(labels[shown], known[shown])
        assert not (shown & kept).any()
        able = np.array(counts(known[~kept], 4))
        dealt = np.array(counts(labels, 4))
        assert ((dealt == able) | (dealt >= dealt.max() - 1)).all()
    if total:
        fewer, _ = assign_labels_to_clients(truth, options(total=total - 1, **table), seed)
        for less, more in zip(fewer, found, strict=True):
            assert ((less == more) | (less == -1)).all()
