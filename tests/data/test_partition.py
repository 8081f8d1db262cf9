"""Which training points a simulated client holds, for every partition."""

import warnings
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner
from numpy.typing import NDArray

from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.data.partition import partition_points
from fedul_flwr.data.seeds import derived_seed, stream
from tests.support.refusals import refuses

Ints = NDArray[np.int64]

# 10 classes of 60 points, sorted by class as a folder of images is.
LABELS: Ints = np.repeat(np.arange(10), 60)
WRITERS = np.random.default_rng(3).permutation(np.arange(600) % 6)


def split(
    partition: str, num_clients: int = 6, labels: Ints = LABELS, columns: Any = None, **options: Any
) -> list[Ints]:
    """``split("shard", **{"shard.shards-per-client": 3})``."""
    values = {**default_flat(), "partition": partition, **options}
    columns = columns or {"writer": WRITERS}
    num_classes = int(labels.max()) + 1
    return partition_points(labels, columns, num_classes, num_clients, parse_flat(values))


def dealt(partition: str, counts: list[int], num_clients: int, **options: Any) -> Ints:
    """``(C, K)`` numbers of points of so many points of each class."""
    labels = np.repeat(np.arange(len(counts)), counts)
    parts = split(partition, num_clients, labels, **options)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    return np.array([np.bincount(labels[part], minlength=len(counts)) for part in parts])


PLAIN = ("iid", "dirichlet", "pathological", "shard", "majority", "majority-mild", "imbalanced")
KINDS: dict[str, dict[str, Any]] = {
    **{name: {} for name in PLAIN},
    "natural": {"natural.column": "writer"},
}
each_kind = pytest.mark.parametrize(("partition", "options"), KINDS.items())


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


@pytest.mark.parametrize(("alpha", "least"), [(0.1, 1), (0.5, 30)])
def test_dirichlet_draws_as_flowers_partitioner(alpha: float, least: int) -> None:
    parts = split("dirichlet", **{"dirichlet.alpha": alpha, "dirichlet.min-points": least})
    order = stream(0, "partition").permutation(len(LABELS))
    seed = derived_seed(0, "partitioner")
    theirs = DirichletPartitioner(6, "label", alpha, min_partition_size=least, seed=seed)
    theirs.dataset = Dataset.from_dict({"label": LABELS[order], "point": order})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of each draw
        expected = [theirs.load_partition(client)["point"] for client in range(6)]
    assert [sorted(part) for part in parts] == [sorted(points) for points in expected]


def test_dirichlet_keeps_to_the_fewest_points() -> None:
    parts = split("dirichlet", **{"dirichlet.min-points": 60, "dirichlet.alpha": 1.0})
    assert min(map(len, parts)) >= 60
    with refuses("setting-unfit-for-data", setting="dirichlet.min-points"):
        split("dirichlet", **{"dirichlet.min-points": 101})


def test_shards_by_hand() -> None:
    # 10 clients · 6 shards of 10 points: a shard lies within one class of 60.
    parts = split("shard", 10, **{"shard.shards-per-client": 6})
    for part in parts:
        assert len(part) == 60
        assert (mix(LABELS, part) % 10 == 0).all()
    assert sum(map(len, parts)) == 600
    assert any(np.count_nonzero(mix(LABELS, part)) > 2 for part in parts)  # dealt at random
    with refuses("setting-unfit-for-data", setting="shard.shards-per-client"):
        split("shard", 10, **{"shard.shards-per-client": 61})


def test_natural_groups_of_a_column_that_exists_are_clients_in_order() -> None:
    parts = split("natural", **KINDS["natural"])
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.flatnonzero(client == WRITERS))
    for num_clients in (5, 7):
        with refuses("clients-of-points", setting="natural.column"):
            split("natural", num_clients, **KINDS["natural"])
    for column in ("", "hospital"):
        with refuses("clients-of-points", setting="natural.column"):
            split("natural", **{"natural.column": column})
    for column, missing in ((WRITERS, -1), (WRITERS.astype(str), "")):
        gaps = {"writer": np.where(np.arange(600) < 3, missing, column)}
        with refuses("clients-of-points", setting="natural.column"):
            split("natural", columns=gaps, **KINDS["natural"])


@each_kind
def test_points_per_client_are_of_the_clients_own(partition: str, options: dict[str, Any]) -> None:
    whole = split(partition, **options)
    thin = split(partition, **options, **{"points-per-client": 20})
    for many, few in zip(whole, thin, strict=True):
        assert len(few) == 20
        # By class shares no more than 20 are drawn.
        assert partition in ("majority", "majority-mild", "imbalanced") or np.isin(few, many).all()
        assert (np.diff(few) > 0).all()


def test_too_many_points_per_client_name_the_client() -> None:
    with refuses("too-few-points", setting="points-per-client"):
        split("iid", **{"points-per-client": 101})


@pytest.mark.parametrize("partition", ["majority", "imbalanced"])
def test_shares_of_classes_need_every_label(partition: str) -> None:
    with refuses("labels-missing", setting="partition"):
        split(partition, labels=np.append(LABELS[1:], -1))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_clients", "count", "covered"), [(5, 2, 10), (3, 4, 10), (3, 2, 6)])
def test_few_classes_at_each_client_are_all_classes_together(
    num_clients: int, count: int, covered: int, seed: int
) -> None:
    # min(10, clients · classes): 5 · 2 = 10, 3 · 4 = 12, 3 · 2 = 6 classes of 60 points.
    options = {"pathological.classes-per-client": count, "seed": seed}
    table = dealt("pathological", [60] * 10, num_clients, **options)
    assert ((table > 0).sum(axis=1) == count).all()
    assert table.sum() == 60 * covered
    assert set(table.sum(axis=0)) <= {0, 60}


def test_few_classes_leave_no_point_without_a_label_out() -> None:
    # Four clients share the 8 points without a label, and two each the 30 of a class.
    labels = np.array([-1] * 8 + [0] * 30 + [1] * 30)
    parts = split("pathological", 4, labels, **{"pathological.classes-per-client": 1})
    assert sorted(np.concatenate(parts)) == [*range(68)]
    for client, part in enumerate(parts):
        assert np.bincount(labels[part] + 1, minlength=3).tolist() == (
            [2, 15, 0] if client % 2 == 0 else [2, 0, 15]
        )
    with refuses("setting-unfit-for-data", setting="pathological.classes-per-client"):
        split("pathological", 4, labels, **{"pathological.classes-per-client": 3})


@pytest.mark.parametrize("num_clients", [3, 7, 11])
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shard", "imbalanced"])
def test_every_point_is_at_a_client(partition: str, num_clients: int) -> None:
    # 601 points are no multiple of any number of clients or shards here: 601 is prime.
    table = dealt(partition, [60] * 9 + [61], num_clients)
    assert table.sum(axis=0).tolist() == [60] * 9 + [61]
    if partition == "shard":  # of 2 · 7 shards each has 601 // 14 = 42 or 43 points
        assert set(table.sum(axis=1)) <= {2 * (601 // (2 * num_clients)) + i for i in range(3)}
    if partition == "imbalanced":
        assert set(table.sum(axis=1)) == {601 // num_clients, 601 // num_clients + 1}


MNIST_COUNTS = [4600, 5490, 4850, 4860, 4725, 4465, 4490, 5035, 4855, 4630]
"""Classes of the 48,000 training points: five times the IID rows of table D.5."""
TABLE_D5_CLIENT_1 = [4498, 4646, 56, 56, 54, 57, 54, 60, 60, 54]


def test_majority_on_mnist_is_like_table_d5() -> None:
    # Share of a majority class: w·80 over the sum of all. Least .45·80 / (.45·80 + .55·80 + 8·.55)
    # = 36 / 84.4 = .4265, most 44 / (44 + 36 + 8·.45) = .5263. A minority class: least
    # .45 / (2·44 + .45 + 7·.55) = .00487, most .55 / (2·36 + .55 + 7·.45) = .00727.
    # Quota 48,000 / 5 = 9600: 4094 to 5052, and 46 to 69.
    assert all(4094 <= n <= 5052 for n in TABLE_D5_CLIENT_1[:2])
    assert all(46 <= n <= 69 for n in TABLE_D5_CLIENT_1[2:])
    first = np.array([dealt("majority", MNIST_COUNTS, 5, seed=seed)[0] for seed in range(30)])
    assert first[:, :2].min() >= 4094
    assert first[:, :2].max() <= 5052
    assert first[:, 2:].min() >= 46
    assert first[:, 2:].max() <= 69
    # On average 9600·40/84 = 4571 (a little less, as class 0 has 4600) and 9600·.5/84 = 57.1, less
    # 0.5 for rounding down; the table has 4572 and 56.4.
    assert first[:, :2].mean() == pytest.approx(4571, abs=100)
    assert first[:, 2:].mean() == pytest.approx(56.6, abs=1)
    assert np.mean(TABLE_D5_CLIENT_1[2:]) == pytest.approx(first[:, 2:].mean(), abs=1.5)


def test_mild_majorities_keep_to_the_papers_bounds() -> None:
    # Six minorities of 8 classes would share at least 1 - 2·.25 = .5, that is .083 each.
    with refuses("number-of-classes", setting="partition"):
        dealt("majority-mild", [500] * 8, 8)
    # Majorities in [0.15, 0.25], minorities below 0.08: bounds of shares; counts are rounded down
    # from 500, so they lie at most 1/500 below.
    for seed in range(60):
        shares = dealt("majority-mild", [500] * 10, 10, seed=seed)[0] / 500
        assert shares[:2].min() >= 0.15 - 0.002
        assert shares[:2].max() <= 0.25
        assert shares[2:].max() < 0.08
        assert shares[2:].min() > 0.04


@pytest.mark.parametrize("num_clients", [10, 50])
def test_500_points_for_every_client_of_table_e10(num_clients: int) -> None:
    """Cut out of 960 points each, the last of 50 would find 425 in its exhausted classes."""
    table = dealt("majority", MNIST_COUNTS, num_clients, **{"points-per-client": 500})
    assert (table.sum(axis=1) == 500).all()
    for client, counts in enumerate(table):
        tops = {2 * client % 10, (2 * client + 1) % 10}
        assert set(np.argsort(counts)[-2:]) == tops
        # Shares as above, times 500: a majority class 213.2 to 263.2, a minority 2.4 to 3.7.
        assert 213 <= min(counts[list(tops)]) <= max(counts[list(tops)]) <= 264
        assert set(np.delete(counts, list(tops))) <= {2, 3, 4}


def test_a_client_without_points_is_refused() -> None:
    # Quota 1: floor(.47) = 0 of every class.
    with refuses("too-few-points", setting="partition"):
        split("majority", 10, labels=np.arange(10))


def test_half_of_a_clients_points_are_of_its_own_class_of_fedmatch() -> None:
    # Shares of ten classes: 0.5, twice 0.15 for the neighbors, 0.2 / 7 for each other one; of 100
    # points the remainders of 20 / 7 = 2.86 give six classes 3 and one 2.
    table = dealt("imbalanced", [100] * 10, 10)
    for client, counts in enumerate(table):
        mine = np.roll(counts, -client)
        assert mine[[0, 1, 9]].tolist() == [50, 15, 15]
        assert sorted(mine[2:9]) == [2, 3, 3, 3, 3, 3, 3]
    assert (table.sum(axis=0) == 100).all()  # no class runs out
    three = dealt("imbalanced", [160] * 3, 3)
    assert three.tolist() == [[100, 30, 30], [30, 100, 30], [30, 30, 100]]
