"""Which training points a simulated client holds, for every partition."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.data.partition import partition_points
from fedul_flwr.data.seeds import stream
from tests.support.refusals import refuses

Ints = NDArray[np.int64]

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
    "majority-mild": {},
    "imbalanced": {},
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


def test_iid_has_the_points_of_flowers_iid_partitioner() -> None:
    from datasets import Dataset
    from flwr_datasets.partitioner import IidPartitioner

    order = stream(0, "partition").permutation(len(LABELS))
    theirs = IidPartitioner(7)  # 600 points: five clients of 86 points, two of 85
    theirs.dataset = Dataset.from_dict({"row": order.tolist()})
    for client, ours in enumerate(split("iid", 7)):
        assert ours.tolist() == sorted(theirs.load_partition(client)["row"])


@each_kind
def test_the_seed_decides(partition: str, options: dict[str, Any]) -> None:
    first, again = split(partition, **options), split(partition, **options)
    other = split(partition, **options, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    changed = not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert changed == (partition != "natural")  # whose groups are the data's own


def test_small_alpha_is_skewed() -> None:
    def largest_share(alpha: float) -> float:
        parts = split("dirichlet", **{"dirichlet.alpha": alpha, "dirichlet.min-points": 1})
        return float(np.mean([mix(LABELS, part).max() / len(part) for part in parts]))

    assert largest_share(100.0) < 0.2 < 0.4 < largest_share(0.05)


def test_dirichlet_keeps_to_the_fewest_points() -> None:
    parts = split("dirichlet", **{"dirichlet.min-points": 60, "dirichlet.alpha": 1.0})
    assert min(map(len, parts)) >= 60
    with refuses("too-few-points", setting="partition"):
        split("dirichlet", **{"dirichlet.min-points": 101})


@pytest.mark.parametrize("count", [1, 3])
def test_pathological_clients_hold_few_classes(count: int) -> None:
    parts = split("pathological", 12, **{"pathological.classes-per-client": count})
    assert [len(np.unique(LABELS[part])) for part in parts] == [count] * 12


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


def test_natural_groups_are_clients_in_order() -> None:
    parts = split("natural", **KINDS["natural"])
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.flatnonzero(client == WRITERS))


@pytest.mark.parametrize("num_clients", [5, 7])
def test_natural_needs_a_client_per_group(num_clients: int) -> None:
    with refuses("number-of-clients", setting="partition"):
        split("natural", num_clients, **KINDS["natural"])


@pytest.mark.parametrize("column", ["", "hospital"])
def test_natural_needs_a_column_that_exists(column: str) -> None:
    with refuses("column-missing", setting="natural.column"):
        split("natural", **{"natural.column": column})
    config = parse_flat({**default_flat(), "partition": "natural", "natural.column": "x"})
    with refuses("column-missing", setting="natural.column"):
        partition_points(LABELS, {}, 10, 6, config)


@each_kind
def test_points_per_client_are_drawn_from_the_clients_own(
    partition: str, options: dict[str, Any]
) -> None:
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


@each_kind
def test_more_clients_than_points_are_refused(partition: str, options: dict[str, Any]) -> None:
    with refuses("too-few-points"):
        split(partition, labels=LABELS[:5], **options)


@pytest.mark.parametrize("partition", ["majority", "imbalanced"])
def test_shares_of_classes_need_every_label(partition: str) -> None:
    with refuses("labels-missing", setting="partition"):
        split(partition, labels=np.append(LABELS[1:], -1))
