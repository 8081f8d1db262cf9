"""Partition the training points over simulated clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import (
    DirichletSettings,
    MajoritySettings,
    NaturalSettings,
    PathologicalSettings,
    ShardSettings,
)
from fedul_flwr.data.class_shares import imbalanced_partition, majority_partition
from fedul_flwr.data.seeds import derived_seed, stream
from fedul_flwr.data.types import UNLABELED, Ints
from fedul_flwr.errors import UserError


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
    labels : ``(n,)``, classes, used only for the split. Points without label (``-1``) count as one
        more class, and are refused by ``majority`` and ``imbalanced``.
    columns : further columns of the data set, for ``natural``.
    num_classes : number of classes K.
    num_clients : number of clients C.
    config : uses ``partition`` with its table, ``points-per-client`` and ``seed``.

    Returns
    -------
    One sorted int64 array per client; clients share no point.

    Raises
    ------
    UserError
        If the settings cannot be met with these data.
    """
    if len(labels) < num_clients:
        raise UserError(
            f"{len(labels)} training points cannot be split over {num_clients} clients."
        )
    if config.partition == "iid":
        parts = np.array_split(_shuffled(len(labels), config), num_clients)
    elif config.partition in ("majority", "imbalanced"):
        parts = _by_class_shares(labels, num_classes, num_clients, config)
    else:
        parts = _by_library(labels, columns, num_classes, num_clients, config)
    if config.points_per_client:  # partitions by class shares already draw this number, if possible
        parts = [
            _thin(part, config.points_per_client, client, config.seed)
            for client, part in enumerate(parts)
        ]
    return [np.sort(part) for part in parts]


def _listed(names: Mapping[str, object]) -> str:
    return f"; it has {', '.join(names)}" if names else ""


def _thin(part: Ints, count: int, client: int, seed: int) -> Ints:
    if len(part) < count:
        raise UserError(
            f"Setting points-per-client = {count}: client {client} has only {len(part)} points."
        )
    chosen: Ints = stream(seed, "points-per-client", client).permutation(part)[:count]
    return chosen


def _by_class_shares(
    labels: Ints, num_classes: int, num_clients: int, config: RunConfig
) -> list[Ints]:
    if (labels == UNLABELED).any():
        raise UserError(
            f"partition = {config.partition!r} needs the label of every training point."
        )
    rng, count = stream(config.seed, "partition"), config.points_per_client
    if config.partition == "imbalanced":
        return imbalanced_partition(labels, num_classes, num_clients, rng, points_per_client=count)
    mild = config[MajoritySettings].mild
    return majority_partition(
        labels, num_classes, num_clients, rng, points_per_client=count, mild=mild
    )


def _shuffled(count: int, config: RunConfig) -> Ints:
    order: Ints = stream(config.seed, "partition").permutation(count)
    return order


def _by_library(
    labels: Ints,
    columns: Mapping[str, NDArray[np.generic]],
    num_classes: int,
    num_clients: int,
    config: RunConfig,
) -> list[Ints]:
    """Partitions of flwr-datasets, applied to a data set with labels only."""
    import datasets
    from flwr_datasets import partitioner as library

    # The library cuts shards in the given order: shuffle first, map back afterwards.
    order = _shuffled(len(labels), config)
    table: dict[str, Sequence[Any]] = {"label": labels[order].tolist()}
    seed = derived_seed(config.seed, "partitioner")
    natural = config[NaturalSettings]
    built: Any
    match config.partition:
        case "dirichlet":
            options = config[DirichletSettings]
            built = library.DirichletPartitioner(
                num_clients,
                "label",
                options.alpha,
                min_partition_size=options.min_points,
                seed=seed,
            )
        case "pathological":
            count = config[PathologicalSettings].classes_per_client
            if count > num_classes:
                raise UserError(
                    f"Setting pathological.classes-per-client = {count}: "
                    f"the data set has {num_classes} classes."
                )
            built = library.PathologicalPartitioner(
                num_clients, "label", count, class_assignment_mode="first-deterministic", seed=seed
            )
        case "shard":
            count = config[ShardSettings].shards_per_client
            if num_clients * count > len(labels):
                raise UserError(
                    f"Setting shard.shards-per-client = {count}: "
                    f"{len(labels)} points make no {num_clients * count} shards."
                )
            built = library.ShardPartitioner(
                num_clients, "label", num_shards_per_partition=count, seed=seed
            )
        case _:
            if natural.column not in columns:
                raise UserError(
                    f"Setting natural.column = {natural.column!r}: the data set has no such column "
                    f"of whole numbers or texts{_listed(columns)}."
                )
            table["group"] = np.asarray(columns[natural.column])[order].tolist()
            built = library.NaturalIdPartitioner("group")
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
