"""Which training points each simulated client holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config import RunConfig
from fedul_flwr.data.seeds import derived_seed, stream
from fedul_flwr.data.types import UNLABELED, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.settings.sections import (
    DirichletSettings,
    MajoritySettings,
    NaturalSettings,
    PathologicalSettings,
    ShardSettings,
)

MAJORITY_RANGE = (0.45, 0.55)
MAJORITY_FACTOR = 80.0
"""Authors' code: weights U[0.45, 0.55], times 80 for the majority, which gives 0.47 and 0.006."""
MILD_MAJORITY = (0.15, 0.25)
MILD_MINORITY = 0.08
"""Paper's body: range of a majority class's share, and what every minority class stays below."""


def partition_points(
    labels: Ints,
    columns: Mapping[str, NDArray[np.generic]],
    num_classes: int,
    num_clients: int,
    config: RunConfig,
) -> list[Ints]:
    """Split positions ``0..n-1`` of the training points over the clients.

    Parameters
    ----------
    labels : ``(n,)``, classes; they shape the split only. Points without label (``-1``) are dealt
        like one more class, and refused by ``majority``.
    columns : further columns of the data set, for ``natural``.
    num_classes : K.
    num_clients : C.
    config : uses ``partition`` with its table, ``points-per-client`` and ``seed``.

    Returns
    -------
    One sorted int64 array per client; no point is at two clients.

    Raises
    ------
    UserError
        If the settings cannot be met with these data.
    """
    if len(labels) < num_clients:
        raise UserError(
            f"{len(labels)} training points cannot be split over {num_clients} clients."
        )
    if config.partition == "majority":
        if (labels == UNLABELED).any():
            raise UserError("partition = 'majority' needs the label of every training point.")
        parts = majority_partition(
            labels,
            num_classes,
            num_clients,
            stream(config.seed, "partition"),
            points_per_client=config.points_per_client,
            mild=config.section("majority", MajoritySettings).mild,
        )
    else:
        parts = _by_library(labels, columns, num_classes, num_clients, config)
    if config.points_per_client:  # majority has drawn so many, if there were so many
        parts = [
            _thin(part, config.points_per_client, client, config.seed)
            for client, part in enumerate(parts)
        ]
    return [np.sort(part) for part in parts]


def majority_partition(
    labels: Ints,
    num_classes: int,
    num_clients: int,
    rng: np.random.Generator,
    *,
    points_per_client: int = 0,
    mild: bool = False,
) -> list[Ints]:
    """Two majority classes per client, 2c and 2c+1 modulo K (FedUL paper, tables D.5 and D.6).

    Clients take their n/C points one after the other, each class until it is exhausted, as in the
    authors' code. With ``mild`` (the paper's body) majorities have 0.15 to 0.25 each and the
    minorities share the rest, each below 0.08. With ``points_per_client`` (the paper's table E.10)
    they take so many instead of n/C, so that no class is exhausted while there is enough of all.
    """
    pools = [rng.permutation(np.flatnonzero(labels == k)) for k in range(num_classes)]
    used = np.zeros(num_classes, dtype=np.int64)
    quota = points_per_client or len(labels) // num_clients
    parts: list[Ints] = []
    for client in range(num_clients):
        majority = {2 * client % num_classes, (2 * client + 1) % num_classes}
        if mild:
            shares = _mild_shares(majority, num_classes, rng)
        else:
            shares = rng.uniform(*MAJORITY_RANGE, num_classes)
            shares[list(majority)] *= MAJORITY_FACTOR
            shares /= shares.sum()
        wanted = np.floor(quota * shares).astype(np.int64)
        if points_per_client:  # exactly so many: the largest remainders are rounded up
            left = quota - wanted.sum()
            wanted[np.argsort(wanted - quota * shares)[:left]] += 1
        drawn = [
            pool[start : start + count]
            for pool, start, count in zip(pools, used, wanted, strict=True)
        ]
        used += np.array([len(part) for part in drawn])
        parts.append(np.concatenate(drawn))
    empty = [client for client, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise UserError(
            f"partition = 'majority' leaves client {empty[0]} without points; use fewer clients."
        )
    return parts


def _mild_shares(
    majority: set[int], num_classes: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    if num_classes < len(majority) + 7:  # what is left of 1 would need minorities above 0.08
        raise UserError("Setting majority.mild needs at least 9 classes.")
    minority = [k for k in range(num_classes) if k not in majority]
    while True:
        shares = np.zeros(num_classes)
        shares[list(majority)] = rng.uniform(*MILD_MAJORITY, len(majority))
        weights = rng.uniform(*MAJORITY_RANGE, len(minority))
        shares[minority] = (1 - shares.sum()) * weights / weights.sum()
        if shares[minority].max() < MILD_MINORITY:
            return shares


def _thin(part: Ints, count: int, client: int, seed: int) -> Ints:
    if len(part) < count:
        raise UserError(
            f"Setting points-per-client = {count}: client {client} has only {len(part)} points."
        )
    chosen: Ints = stream(seed, "points-per-client", client).permutation(part)[:count]
    return chosen


def _by_library(
    labels: Ints,
    columns: Mapping[str, NDArray[np.generic]],
    num_classes: int,
    num_clients: int,
    config: RunConfig,
) -> list[Ints]:
    """Partitions that flwr-datasets has, on a data set of labels alone."""
    import datasets
    from flwr_datasets import partitioner as library

    # The library cuts iid and shards in order of appearance: shuffle first, map back after.
    order = stream(config.seed, "partition").permutation(len(labels))
    table: dict[str, Sequence[Any]] = {"label": labels[order].tolist()}
    seed = derived_seed(config.seed, "partitioner")
    natural = config.section("natural", NaturalSettings)
    built: Any
    match config.partition:
        case "dirichlet":
            options = config.section("dirichlet", DirichletSettings)
            built = library.DirichletPartitioner(
                num_clients,
                "label",
                options.alpha,
                min_partition_size=options.min_points,
                seed=seed,
            )
        case "pathological":
            count = config.section("pathological", PathologicalSettings).classes_per_client
            if count > num_classes:
                raise UserError(
                    f"Setting pathological.classes-per-client = {count}: "
                    f"the data set has {num_classes} classes."
                )
            built = library.PathologicalPartitioner(
                num_clients, "label", count, class_assignment_mode="first-deterministic", seed=seed
            )
        case "shard":
            count = config.section("shard", ShardSettings).shards_per_client
            if num_clients * count > len(labels):
                raise UserError(
                    f"Setting shard.shards-per-client = {count}: "
                    f"{len(labels)} points make no {num_clients * count} shards."
                )
            built = library.ShardPartitioner(
                num_clients, "label", num_shards_per_partition=count, seed=seed
            )
        case "natural":
            if natural.column not in columns:
                raise UserError(
                    f"Setting natural.column = {natural.column!r}: the data set has "
                    f"{', '.join(columns) or 'no further column'}."
                )
            table["group"] = np.asarray(columns[natural.column])[order].tolist()
            built = library.NaturalIdPartitioner("group")
        case _:
            built = library.IidPartitioner(num_clients)
    table["position"] = order.tolist()
    built.dataset = datasets.Dataset.from_dict(table)
    try:
        if config.partition == "natural" and built.num_partitions != num_clients:
            raise UserError(
                f"partition = 'natural': column {natural.column!r} has {built.num_partitions} "
                f"groups, so the run needs that many clients, not {num_clients}."
            )
        return [
            np.asarray(built.load_partition(client)["position"], dtype=np.int64)
            for client in range(num_clients)
        ]
    except ValueError as err:
        raise UserError(
            f"partition = {config.partition!r} cannot split {len(labels)} points over "
            f"{num_clients} clients: {err}"
        ) from err
