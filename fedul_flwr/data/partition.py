"""Which training points each simulated client and the server get, by shares that settings name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import (
    DirichletSettings,
    NaturalSettings,
    PathologicalSettings,
    ShardSettings,
)
from fedul_flwr.data.seeds import derived_seed, stream
from fedul_flwr.data.types import UNLABELED, Source
from fedul_flwr.errors import UserError


@dataclass(frozen=True)
class ClientTruth:
    """Facts about a client that only the simulation knows: for reports, never for training."""

    points: Ints
    labels: Ints


def assign_points(
    source: Source, num_clients: int, config: RunConfig
) -> tuple[list[Ints], Ints, Ints]:
    """Sorted rows of the training points of each client, and of those that the server keeps for
    validation and for training, by the shared settings of data."""
    labels = np.asarray(source.train.labels)
    training, validation, server = set_aside(labels, config)
    parts = partition_points(
        labels[training],
        {name: column[training] for name, column in source.train.columns.items()},
        source.num_classes,
        num_clients,
        config,
    )
    return [np.sort(training[part]) for part in parts], validation, server


def set_aside(labels: Ints, config: RunConfig) -> tuple[Ints, Ints, Ints]:
    """Sorted rows for all clients, and those that the server keeps for validation and for training,
    ``validation-fraction`` and ``server-fraction`` of all rows with a label.

    Stratified by label. Rows without one (``-1``) stay with the clients.
    """
    everything = np.arange(len(labels), dtype=np.int64)
    training, validation = _take(everything, labels, config, "validation")
    training, server = _take(training, labels, config, "server")
    return training, validation, server


def _take(rows: Ints, labels: Ints, config: RunConfig, what: str) -> tuple[Ints, Ints]:
    """Take the fraction of all labels that belongs to ``what`` out of ``rows``."""
    key = f"{what}-fraction"
    fraction = {"validation": config.validation_fraction, "server": config.server_fraction}[what]
    num_labeled = int((labels != UNLABELED).sum())
    if fraction == 0 or num_labeled == 0:
        return rows, rows[:0]
    with_label = labels[rows] != UNLABELED
    choice = rows[with_label]
    seed = derived_seed(config.seed, what)
    try:
        rest, sample = without_sample(
            choice, labels[choice], math.ceil(fraction * num_labeled), seed
        )
    except ValueError as err:
        raise UserError(
            f"Setting {key} = {fraction}: {err}", "setting-unfit-for-data", setting=key
        ) from err
    return np.sort(np.concatenate([rest, rows[~with_label]])), sample


def without_sample(rows: Ints, labels: Ints, size: int, seed: int) -> tuple[Ints, Ints]:
    """Split ``rows`` into the rest and a sample of ``size``, stratified by ``labels``."""
    from sklearn.model_selection import train_test_split

    rest, sample = train_test_split(rows, test_size=size, random_state=seed, stratify=labels)
    return np.sort(rest), np.sort(sample)


MAJORITY_RANGE = (0.45, 0.55)
MAJORITY_FACTOR = 80.0
"""Authors' code: weights U[0.45, 0.55], times 80 for the majority, which gives 0.47 and 0.006."""
MILD_MAJORITY = (0.15, 0.25)
MILD_MINORITY = 0.08
"""Paper's main text: range of a majority class's share, and bound of every minority class."""
BY_REFERENCE, NEIGHBOR, OTHERS = 0.5, 0.15, 0.2
"""FedMatch: shares of a client's own class, of each neighbor of it, and of all others together."""


def _by_class_shares(
    labels: Ints, num_classes: int, num_clients: int, config: RunConfig
) -> list[Ints]:
    """Clients take their n/C points, or ``points-per-client``, by shares of the classes, one client
    after the other, until a class runs out, as in the authors' code.

    ``majority``: two majority classes per client, 2c and 2c+1 modulo K (FedUL paper, tables D.5 and
    D.6). ``majority-mild`` (the paper's main text): majorities have 0.15 to 0.25 each and the
    minorities share the rest, each below 0.08. With ``points-per-client`` (the paper's table E.10)
    no class runs out while there are enough points. What no share asks for, and what rounding down
    leaves, is at no client, as in the paper's tables: there later clients lack whole classes.

    ``imbalanced``: half of client c's points are of class c modulo K (Batch-NonIID of the FedMatch
    paper). The classes before and after it, in a circle, have 0.15 each, and the others 0.2
    together, evenly; the authors' code has 0.02 and six times 0.03. With fewer than four classes
    the shares of the existing ones keep their proportions: 0.625 and twice 0.1875 for three
    classes. No class runs out if all are equally frequent and C is a multiple of K. Where one does,
    points that are left fill the client, so that all points are at clients.
    """
    if (labels == UNLABELED).any():
        raise UserError(
            f"partition = {config.partition!r} needs the label of every training point.",
            "labels-missing",
            setting="partition",
        )
    rng, exact = stream(config.seed, "partition"), config.points_per_client > 0
    pools = [rng.permutation(np.flatnonzero(labels == k)) for k in range(num_classes)]
    quotas = np.full(num_clients, config.points_per_client or len(labels) // num_clients)
    fills = config.partition == "imbalanced"
    if fills and not exact:
        quotas[: len(labels) % num_clients] += 1
    wanted = np.empty((num_clients, num_classes), dtype=np.int64)
    for client, quota in enumerate(quotas):
        if config.partition == "imbalanced":
            # Rotated for every client, so that rounding favors no class over K clients.
            counts = _largest_remainders(quota, _circular_shares(num_classes))
            wanted[client] = np.roll(counts, client)
            continue
        majority = {2 * client % num_classes, (2 * client + 1) % num_classes}
        if config.partition == "majority-mild":
            shares = _mild_shares(majority, num_classes, rng)
        else:
            shares = rng.uniform(*MAJORITY_RANGE, num_classes)
            shares[list(majority)] *= MAJORITY_FACTOR
            shares /= shares.sum()
        wanted[client] = _largest_remainders(quota, shares) if exact else np.floor(quota * shares)
    ends = wanted.cumsum(axis=0)
    parts = [
        np.concatenate([pool[a:b] for pool, a, b in zip(pools, start, end, strict=True)])
        for start, end in zip(ends - wanted, ends, strict=True)
    ]
    if not fills:
        return parts
    left = [pool[end:] for pool, end in zip(pools, ends[-1], strict=True)]
    missing = quotas - [len(part) for part in parts]
    more = np.split(rng.permutation(np.concatenate(left)), missing.cumsum())
    return [np.concatenate(both) for both in zip(parts, more, strict=False)]


def _mild_shares(majority: set[int], num_classes: int, rng: np.random.Generator) -> Floats:
    if num_classes < len(majority) + 7:  # the rest would need minorities above 0.08
        raise UserError(
            "Setting partition = 'majority-mild' needs at least 9 classes.",
            "number-of-classes",
            setting="partition",
        )
    minority = [k for k in range(num_classes) if k not in majority]
    while True:
        shares = np.zeros(num_classes)
        shares[list(majority)] = rng.uniform(*MILD_MAJORITY, len(majority))
        weights = rng.uniform(*MAJORITY_RANGE, len(minority))
        shares[minority] = (1 - shares.sum()) * weights / weights.sum()
        if shares[minority].max() < MILD_MINORITY:
            return shares


def _circular_shares(num_classes: int) -> Floats:
    """``(K,)``: shares of the classes at a client whose own class is the first."""
    shares: Floats = np.zeros(num_classes)
    shares[2:-1] = OTHERS / max(num_classes - 3, 1)
    shares[0] += BY_REFERENCE
    shares[1 % num_classes] += NEIGHBOR
    shares[-1] += NEIGHBOR  # with two classes the other one is both neighbors
    shares /= shares.sum()
    return shares


def _largest_remainders(count: int, shares: Floats) -> Ints:
    """``(K,)`` integers close to ``count * shares`` with the sum ``count``."""
    wanted = np.floor(count * shares).astype(np.int64)
    left = count - wanted.sum()
    wanted[np.argsort(wanted - count * shares, kind="stable")[:left]] += 1
    return wanted


def partition_points(
    labels: Ints,
    columns: Mapping[str, NDArray[np.generic]],
    num_classes: int,
    num_clients: int,
    config: RunConfig,
) -> list[Ints]:
    """Split positions ``0..n-1`` of the training points over the clients."""
    order = stream(config.seed, "partition").permutation(len(labels))
    if config.partition == "iid":
        parts = np.array_split(order, num_clients)
    elif config.partition in ("majority", "majority-mild", "imbalanced"):
        parts = _by_class_shares(labels, num_classes, num_clients, config)
    elif config.partition == "natural":
        parts = _natural(columns, order, num_clients, config)
    elif config.partition == "pathological":
        parts = _of_few_classes(labels, order, num_clients, config)
    elif config.partition == "shard":
        parts = _of_shards(labels, order, num_clients, config)
    else:
        parts = _dirichlet(labels, order, num_clients, config)
    count = config.points_per_client
    for client, part in enumerate(parts):
        if len(part) < max(count, 1):
            key = "points-per-client" if count else "partition"
            raise UserError(
                f"Setting {key} = {count or config.partition!r}: client {client} of {num_clients} "
                f"gets {len(part)} points, and needs {max(count, 1)}. Choose fewer clients.",
                "too-few-points",
                setting=key,
            )
        if count:  # partitions by class shares already draw this number, if possible
            order = stream(config.seed, "points-per-client", client).permutation(part)
            parts[client] = order[:count]
    return [np.sort(part) for part in parts]


_ATTEMPTS, _DRAWS = 20, 11
"""Seeds that are tried, and draws of each, until all clients have enough points."""


def _unfit(key: str, labels: Ints, num_clients: int, config: RunConfig, why: object) -> UserError:
    return UserError(
        f"Setting {key}: partition = {config.partition!r} cannot split {len(labels)} points over "
        f"{num_clients} clients ({why}).",
        "setting-unfit-for-data",
        setting=key,
    )


def _of_few_classes(labels: Ints, order: Ints, num_clients: int, config: RunConfig) -> list[Ints]:
    """So many classes at each client: class c modulo K and others at random (Li et al. 2022).

    A class that this leaves at no client takes the place of one that most clients have, as long as
    clients times classes are K or more. Clients of a class share its points evenly, and all clients
    share the points without a label.
    """
    key, count = "pathological.classes-per-client", config[PathologicalSettings].classes_per_client
    classes = np.unique(labels[labels != UNLABELED])
    if count > len(classes):
        why = f"there are {len(classes)} classes, and each client needs {count}"
        raise _unfit(key, labels, num_clients, config, why)
    rng = np.random.default_rng(derived_seed(config.seed, "partitioner"))
    has = np.zeros((num_clients, len(classes)), dtype=np.bool_)
    for client, row in enumerate(has):
        row[client % len(classes)] = True
        while row.sum() < count:
            row[rng.choice(len(classes), size=1)] = True
    for absent in np.flatnonzero(~has.any(axis=0)):
        frequent = has.sum(axis=0).argmax()
        if has[:, frequent].sum() > 1:
            client = np.flatnonzero(has[:, frequent])[-1]
            has[client, [frequent, absent]] = False, True
    parts: list[list[Ints]] = [[] for _ in range(num_clients)]
    everyone = np.ones(num_clients, dtype=np.bool_)
    for label, owners in [*zip(classes, has.T, strict=True), (UNLABELED, everyone)]:
        points, clients = order[labels[order] == label], np.flatnonzero(owners)
        if label != UNLABELED and len(points) < len(clients):
            why = f"{len(clients)} clients would share {len(points)} points of class {label}"
            raise _unfit(key, labels, num_clients, config, why)
        for share, at in enumerate(clients):
            parts[at].append(np.array_split(points, len(clients))[share])
    return [rng.permutation(np.concatenate(part)) for part in parts]


def _of_shards(labels: Ints, order: Ints, num_clients: int, config: RunConfig) -> list[Ints]:
    """Shards of the points in the order of their labels, equal but for one point, so many at each
    client, at random."""
    key, count = "shard.shards-per-client", config[ShardSettings].shards_per_client
    if num_clients * count > len(labels):
        why = f"{num_clients * count} shards need a point each"
        raise _unfit(key, labels, num_clients, config, why)
    rng = np.random.default_rng(derived_seed(config.seed, "partitioner"))
    shards = np.array_split(order[np.argsort(labels[order], kind="stable")], num_clients * count)
    dealt = rng.permutation(len(shards)).reshape(num_clients, count)
    return [rng.permutation(np.concatenate([shards[s] for s in row])) for row in dealt]


def _dirichlet(labels: Ints, order: Ints, num_clients: int, config: RunConfig) -> list[Ints]:
    """Shares of every class by a draw of Dirichlet's distribution (Yurochkin et al. 2019).

    A draw that leaves a client fewer than ``dirichlet.min-points`` is repeated. Seeds give the same
    parts as ``DirichletPartitioner`` of flwr-datasets.
    """
    chosen, sorted_labels = config[DirichletSettings], labels[order]
    alpha = np.full(num_clients, chosen.alpha)
    of_class = [np.flatnonzero(sorted_labels == label) for label in np.unique(sorted_labels)]
    fewest = 0
    for attempt in range(_ATTEMPTS):
        words = ("partitioner", attempt) if attempt else ("partitioner",)
        rng = np.random.default_rng(derived_seed(config.seed, *words))
        for _ in range(_DRAWS):
            shares = [
                np.split(points, (np.cumsum(rng.dirichlet(alpha)) * len(points)).astype(int)[:-1])
                for points in of_class
            ]
            parts = [np.concatenate(part) for part in zip(*shares, strict=True)]
            fewest = max(fewest, least := min(map(len, parts)))
            if least >= chosen.min_points:
                for part in parts:
                    rng.shuffle(part)
                return [order[part] for part in parts]
    why = f"in none of {_ATTEMPTS * _DRAWS} draws had every client more than {fewest} points"
    raise _unfit("dirichlet.min-points", labels, num_clients, config, why)


def _natural(
    columns: Mapping[str, NDArray[np.generic]], order: Ints, num_clients: int, config: RunConfig
) -> list[Ints]:
    """The points of each value of a column, in the order of the values."""
    name = config[NaturalSettings].column
    if name not in columns:
        raise UserError(
            f"Setting natural.column = {name!r}: the training data have no such column beside "
            f"their features and labels, but {', '.join(columns) or 'none'}.",
            "clients-of-points",
            setting="natural.column",
        )
    values = np.asarray(columns[name])
    groups, client_of = np.unique(values, return_inverse=True)
    gaps = values == "" if values.dtype.kind == "U" else values == UNLABELED
    if len(groups) != num_clients or gaps.any():
        raise UserError(
            f"Setting natural.column = {name!r}: it has {len(groups)} values, and {gaps.sum()} "
            f"points without one; each point needs its client, of which the run has {num_clients}.",
            "clients-of-points",
            setting="natural.column",
        )
    return [order[client_of[order] == client] for client in range(num_clients)]
