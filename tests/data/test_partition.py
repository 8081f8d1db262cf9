"""Which training points a simulated client holds, for every partition."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config import default_flat, parse_flat
from fedul_flwr.data.partition import majority_partition, partition_points
from fedul_flwr.errors import UserError

Ints = NDArray[np.int64]

MNIST_COUNTS = [4600, 5490, 4850, 4860, 4725, 4465, 4490, 5035, 4855, 4630]
"""Classes of the 48,000 training points: five times the IID rows of table D.5."""
TABLE_D5_CLIENT_1 = [4498, 4646, 56, 56, 54, 57, 54, 60, 60, 54]

# 10 classes of 60 points, sorted by class as a folder of images is.
LABELS: Ints = np.repeat(np.arange(10), 60)
WRITERS = np.random.default_rng(3).permutation(np.arange(600) % 6)


def split(
    partition: str, num_clients: int = 6, labels: Ints = LABELS, **options: Any
) -> list[Ints]:
    """``split("shard", **{"shard.shards-per-client": 3})``."""
    values = {**default_flat(), "partition": partition, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's advice on its options
        return partition_points(labels, {"writer": WRITERS}, 10, num_clients, parse_flat(values))


KINDS: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {},
    "pathological": {},
    "shard": {},
    "natural": {"natural.column": "writer"},
    "majority": {},
    "majority mild": {"majority.mild": True},
}
each_kind = pytest.mark.parametrize(
    ("partition", "options"), [(name.split()[0], KINDS[name]) for name in KINDS], ids=KINDS
)


def mix(labels: Ints, part: Ints) -> Ints:
    return np.bincount(labels[part], minlength=10)


@each_kind
def test_no_point_is_at_two_clients(partition: str, options: dict[str, Any]) -> None:
    parts = split(partition, **options)
    assert len(parts) == 6
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < len(LABELS)
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()


@each_kind
def test_the_seed_decides(partition: str, options: dict[str, Any]) -> None:
    first, again = split(partition, **options), split(partition, **options)
    other = split(partition, **options, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    changed = not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert changed == (partition != "natural")  # whose groups are the data's own


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "natural"])
def test_no_point_is_left_over(partition: str) -> None:
    assert sum(map(len, split(partition, **KINDS[partition]))) == len(LABELS)


def test_iid_is_even_and_mixed() -> None:
    parts = split("iid", 7)
    assert sorted({len(part) for part in parts}) == [85, 86]  # 600 = 5 · 86 + 2 · 85
    # Labels are sorted: without shuffling a client would have two or three classes.
    # 60 of 600 in a class, 1 of 7 drawn: 8.6 ± 2.6 of each.
    assert all(mix(LABELS, part).min() > 0 for part in parts)


def test_small_alpha_is_skewed() -> None:
    def largest_share(alpha: float) -> float:
        parts = split("dirichlet", **{"dirichlet.alpha": alpha, "dirichlet.min-points": 1})
        return float(np.mean([mix(LABELS, part).max() / len(part) for part in parts]))

    assert largest_share(100.0) < 0.2 < 0.4 < largest_share(0.05)


def test_dirichlet_keeps_to_the_fewest_points() -> None:
    parts = split("dirichlet", **{"dirichlet.min-points": 60, "dirichlet.alpha": 1.0})
    assert min(map(len, parts)) >= 60
    with pytest.raises(UserError, match="partition = 'dirichlet' cannot split 600 points over 6"):
        split("dirichlet", **{"dirichlet.min-points": 101})


@pytest.mark.parametrize("count", [1, 3])
def test_pathological_clients_hold_few_classes(count: int) -> None:
    parts = split("pathological", 12, **{"pathological.classes-per-client": count})
    assert [len(np.unique(LABELS[part])) for part in parts] == [count] * 12


def test_pathological_refuses_more_classes_than_there_are() -> None:
    message = "Setting pathological.classes-per-client = 11: the data set has 10 classes."
    with pytest.raises(UserError, match=re.escape(message)):
        split("pathological", **{"pathological.classes-per-client": 11})


def test_shards_by_hand() -> None:
    # 10 clients · 6 shards of 10 points: a shard lies within one class of 60.
    parts = split("shard", 10, **{"shard.shards-per-client": 6})
    for part in parts:
        assert len(part) == 60
        assert (mix(LABELS, part) % 10 == 0).all()
    assert sum(map(len, parts)) == 600
    assert any(np.count_nonzero(mix(LABELS, part)) > 2 for part in parts)  # dealt at random
    message = "Setting shard.shards-per-client = 61: 600 points make no 610 shards."
    with pytest.raises(UserError, match=re.escape(message)):
        split("shard", 10, **{"shard.shards-per-client": 61})


def test_natural_groups_are_clients_in_order() -> None:
    parts = split("natural", **KINDS["natural"])
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.flatnonzero(client == WRITERS))


@pytest.mark.parametrize("num_clients", [5, 7])
def test_natural_needs_a_client_per_group(num_clients: int) -> None:
    message = (
        "partition = 'natural': column 'writer' has 6 groups, so the run needs that many clients, "
        f"not {num_clients}."
    )
    with pytest.raises(UserError, match=re.escape(message)):
        split("natural", num_clients, **KINDS["natural"])


@pytest.mark.parametrize("column", ["", "hospital"])
def test_natural_needs_a_column_that_exists(column: str) -> None:
    message = f"Setting natural.column = {column!r}: the data set has writer."
    with pytest.raises(UserError, match=re.escape(message)):
        split("natural", **{"natural.column": column})
    config = parse_flat({**default_flat(), "partition": "natural", "natural.column": "x"})
    with pytest.raises(UserError, match="the data set has no further column"):
        partition_points(LABELS, {}, 10, 6, config)


@each_kind
def test_points_per_client_are_drawn_from_the_clients_own(
    partition: str, options: dict[str, Any]
) -> None:
    whole = split(partition, **options)
    thin = split(partition, **options, **{"points-per-client": 20})
    for many, few in zip(whole, thin, strict=True):
        assert len(few) == 20
        assert partition == "majority" or np.isin(few, many).all()  # which draws no more than 20
        assert (np.diff(few) > 0).all()


def test_points_per_client_keep_the_clients_mix() -> None:
    # About 47 of each majority class in 100: 20 of one class alone have probability 1e-6.
    for client, part in enumerate(split("majority", 5, **{"points-per-client": 20})):
        assert {2 * client, 2 * client + 1} <= set(LABELS[part])


def test_too_many_points_per_client_name_the_client() -> None:
    message = "Setting points-per-client = 101: client 0 has only 100 points."
    with pytest.raises(UserError, match=re.escape(message)):
        split("iid", **{"points-per-client": 101})


@each_kind
def test_more_clients_than_points_are_refused(partition: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="5 training points cannot be split over 6 clients"):
        split(partition, labels=LABELS[:5], **options)


# majority: tables D.5 and D.6


def majority(
    counts: list[int], num_clients: int, seed: int = 0, *, mild: bool = False
) -> tuple[Ints, list[Ints]]:
    """``(C, K)`` numbers of points, and the parts."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(seed)
    parts = majority_partition(labels, len(counts), num_clients, rng, mild=mild)
    return np.array([np.bincount(labels[p], minlength=len(counts)) for p in parts]), parts


def test_majority_on_mnist_is_like_table_d5() -> None:
    # Share of a majority class: w·80 over the sum of all. Least .45·80 / (.45·80 + .55·80 + 8·.55)
    # = 36 / 84.4 = .4265, most 44 / (44 + 36 + 8·.45) = .5263. A minority class: least
    # .45 / (2·44 + .45 + 7·.55) = .00487, most .55 / (2·36 + .55 + 7·.45) = .00727.
    # Quota 48,000 / 5 = 9600: 4094 to 5052, and 46 to 69.
    assert all(4094 <= n <= 5052 for n in TABLE_D5_CLIENT_1[:2])
    assert all(46 <= n <= 69 for n in TABLE_D5_CLIENT_1[2:])
    first = np.array([majority(MNIST_COUNTS, 5, seed)[0][0] for seed in range(30)])
    assert first[:, :2].min() >= 4094
    assert first[:, :2].max() <= 5052
    assert first[:, 2:].min() >= 46
    assert first[:, 2:].max() <= 69
    # On average 9600·40/84 = 4571 (a little less, as class 0 has 4600) and 9600·.5/84 = 57.1, less
    # 0.5 for rounding down; the table has 4572 and 56.4.
    assert first[:, :2].mean() == pytest.approx(4571, abs=100)
    assert first[:, 2:].mean() == pytest.approx(56.6, abs=1)
    assert np.mean(TABLE_D5_CLIENT_1[2:]) == pytest.approx(first[:, 2:].mean(), abs=1.5)


def test_every_clients_majority_on_mnist() -> None:
    table, parts = majority(MNIST_COUNTS, 5)
    for client in range(5):
        assert set(np.argsort(table[client])[-2:]) == {2 * client, 2 * client + 1}
    # Later clients find classes exhausted (table D.5 has zeros too) and get fewer points.
    assert (table.sum(axis=0) <= MNIST_COUNTS).all()
    assert (table == 0).any()
    assert table.sum(axis=1).min() > 8500
    assert table.sum(axis=1).max() <= 9600
    assert len(np.unique(np.concatenate(parts))) == table.sum()


def test_classes_are_drawn_until_exhausted() -> None:
    # Quota 1005 / 3 = 335: client 0 wants at least 40 % of class 0 and gets the 5 that exist;
    # client 2 (majority 0 and 1 again, 4 = 0 modulo 4) finds none.
    table, _ = majority([5, 400, 300, 300], 3)
    assert list(table[:, 0]) == [5, 0, 0]
    assert table[0, 1] > 0.4 * 335


def test_more_than_half_as_many_clients_as_classes_wrap_around() -> None:
    table, _ = majority([10_000] * 4, 4)
    tops = [set(np.argsort(row)[-2:]) for row in table]
    assert tops == [{0, 1}, {2, 3}, {0, 1}, {2, 3}]
    odd, _ = majority([10_000] * 5, 5)
    assert [set(np.argsort(row)[-2:]) for row in odd] == [{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 4}]


def test_mild_majorities_keep_to_the_papers_bounds() -> None:
    # Majorities in [0.15, 0.25], minorities below 0.08: bounds of shares; counts are rounded down
    # from 500, so they lie at most 1/500 below.
    for seed in range(60):
        shares = majority([500] * 10, 10, seed, mild=True)[0][0] / 500
        assert shares[:2].min() >= 0.15 - 0.002
        assert shares[:2].max() <= 0.25
        assert shares[2:].max() < 0.08
        assert shares[2:].min() > 0.04


def test_mild_needs_nine_classes() -> None:
    # 8 classes: six minorities share at least 1 - 2·.25 = .5, that is .083 each.
    with pytest.raises(UserError, match="at least 9 classes"):
        majority([500] * 8, 8, mild=True)
    assert majority([500] * 9, 9, mild=True)[0][0][2:].max() < 0.08 * 500


@pytest.mark.parametrize("num_clients", [10, 20, 30, 40, 50])
def test_500_points_for_every_client_of_table_e10(num_clients: int) -> None:
    """Cut out of 960 points each, the last of 50 would find 425 in its exhausted classes."""
    labels = np.repeat(np.arange(10), MNIST_COUNTS)
    rng = np.random.default_rng(0)
    parts = majority_partition(labels, 10, num_clients, rng, points_per_client=500)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together) == 500 * num_clients
    for client, part in enumerate(parts):
        counts = mix(labels, part)
        tops = {2 * client % 10, (2 * client + 1) % 10}
        assert set(np.argsort(counts)[-2:]) == tops
        # Shares as above, times 500: a majority class 213.2 to 263.2, a minority 2.4 to 3.7.
        assert 213 <= min(counts[list(tops)]) <= max(counts[list(tops)]) <= 264
        assert set(np.delete(counts, list(tops))) <= {2, 3, 4}


def test_majorities_are_refused_more_points_than_there_are() -> None:
    message = r"Setting points-per-client = 100: client 5 has only \d+ points\."
    with pytest.raises(UserError, match=message):  # its classes are client 0's
        split("majority", 6, **{"points-per-client": 100})


def test_a_client_without_points_is_refused() -> None:
    # Quota 1: floor(.47) = 0 of every class.
    with pytest.raises(UserError, match="leaves client 0 without points"):
        majority([1] * 10, 10)
