"""A simulated federation on disk: the clients' data, and the true labels for the simulation.

The server of a simulation builds it once; clients get the paths from :func:`client_files`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import Scalar, Settings
from fedul_flwr.config.method_settings import (
    LabelSettings,
    LabelSourceSettings,
    UnlabeledSetSettings,
)
from fedul_flwr.config.methods import PARTLY_LABELED, DataKind, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.data.cache import build_once, cache_directory, cache_key
from fedul_flwr.data.partition import ClientTruth, assign_points
from fedul_flwr.data.safe_files import open_array, read_arrays, replace_file
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_priors import Dirichlet, effective_labels
from fedul_flwr.data.sources import TRAIN_INPUTS, read_source
from fedul_flwr.data.types import (
    UNLABELED,
    Bools,
    Floats,
    Ints,
    LabeledPoints,
    PartlyLabeledPoints,
    Source,
    UnlabeledSets,
    bounds_of,
    part_of,
)
from fedul_flwr.errors import UserError

# Unlabeled sets of simulated clients: how they are generated, and where they are stored.

DOMINANT_FACTOR = 10.0
"""Authors' code: the entry of class m mod K of set m is multiplied by this."""


NOISE_DRAWS = 200
"""Draws of the noise on priors from which its variance is estimated."""


@dataclass(frozen=True)
class GeneratedSets:
    """Unlabeled sets of one client.

    Attributes
    ----------
    points : ``(n_c,)``, training points, set by set (a shared point appears once per set).
    sets : ``(n_c,)``, the set of every point.
    priors : ``(M, K)``, priors for the client: realized proportions, with noise if set.
    true_priors : ``(M, K)``, realized proportions.
    drawn_priors : ``(M, K)``, proportions used to assign the points, each row divided by its sum.
        Realized proportions differ if a client has too few points of a class.
    """

    points: Ints
    sets: Ints
    priors: Floats
    true_priors: Floats
    drawn_priors: Floats
    posterior: Dirichlet


def generate_sets(
    labels: Ints,
    points: Ints,
    num_classes: int,
    client: int,
    settings: UnlabeledSetSettings,
    seed: int,
    *,
    num_clients: int = 1,
) -> GeneratedSets:
    """Assign a client's points to M unlabeled sets with different class priors."""
    rng = stream(seed, "sets", client)
    num_sets, most = settings.num_sets, settings.num_sets_max
    if most:
        num_sets = int(np.linspace(num_sets, most, num_clients).round()[client])
    if settings.shared_prior_draws:
        # For as many sets as any client has.
        largest, shared_rng = max(settings.num_sets, most), stream(seed, "same-priors")
        draws = [
            draw_priors(largest, num_classes, settings.priors, shared_rng)
            for _ in range(settings.shared_prior_draws)
        ]
        weights = equal_columns(np.sum(draws, axis=0)[:num_sets])
    else:
        weights = draw_priors(num_sets, num_classes, settings.priors, rng)
    pools = [rng.permutation(points[labels[points] == k]) for k in range(num_classes)]
    if settings.overlap == "shared":
        members = _deal_shared(pools, weights, rng)
    else:
        members = _deal_disjoint(pools, weights)
    order = [rng.permutation(np.concatenate(parts)) for parts in members]
    counts = np.array([[len(part) for part in parts] for parts in members], dtype=np.float64)
    realized = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    stated, posterior = _stated(counts, realized, client, settings, seed)
    return GeneratedSets(
        points=np.concatenate(order).astype(np.int64),
        sets=np.repeat(np.arange(num_sets), [len(part) for part in order]).astype(np.int64),
        priors=stated,
        true_priors=realized,
        drawn_priors=weights / weights.sum(axis=1, keepdims=True),
        posterior=posterior,
    )


def _stated(
    counts: Floats, realized: Floats, client: int, settings: UnlabeledSetSettings, seed: int
) -> tuple[Floats, Dirichlet]:
    """Priors for the client ``(M, K)``, and how uncertain they are."""
    if settings.prior_counts:
        rng = stream(seed, "labels for priors", client)
        sizes = counts.astype(np.int64)
        intervals = [
            rng.multivariate_hypergeometric(row, min(settings.prior_counts, int(row.sum())))
            for row in sizes
        ]
        posterior = Dirichlet.from_counts(intervals)
        return posterior.means, posterior
    if not settings.prior_noise:
        return realized, Dirichlet.exact(realized)
    epsilon = settings.prior_noise
    stated = add_prior_noise(realized, epsilon, stream(seed, "noise", client))
    # The owner knows how strong the noise is, not what it did: other draws of it.
    rng = stream(seed, "strength of noise", client)
    draws = [add_prior_noise(realized, epsilon, rng) for _ in range(NOISE_DRAWS)]
    worth = effective_labels(realized, np.mean([(draw - realized) ** 2 for draw in draws], axis=0))
    return stated, Dirichlet.from_noise(stated, float(np.median(worth)))


def draw_priors(num_sets: int, num_classes: int, kind: str, rng: np.random.Generator) -> Floats:
    """Rows of class priors ``(M, K)``.

    ``"uniform"``: U[0.1, 0.9] normalized (the paper's text). ``"dominant"``: U[0.1, 1], entry
    m mod K times 10, normalized (the authors' code).
    """
    if kind == "uniform":
        draw = rng.uniform(0.1, 0.9, (num_sets, num_classes))
    else:
        draw = rng.uniform(0.1, 1.0, (num_sets, num_classes))
        rows = np.arange(num_sets)
        draw[rows, rows % num_classes] *= DOMINANT_FACTOR
    priors: Floats = draw / draw.sum(axis=1, keepdims=True)
    return priors


def equal_columns(priors: Floats) -> Floats:
    """Scale every column to the sum 1, so that all sets together need equally many of each class.

    Set m takes n/M times its row (:func:`_deal_shared`), so M sets contain K/M of a client's n
    points (authors' code): all for M = K, half for M = 2K.

    ``priors`` and the result are ``(M, K)``; no column of ``priors`` may be all zero.

    Examples
    --------
    >>> equal_columns(np.array([[3.0, 1.0], [1.0, 1.0]])).tolist()
    [[0.75, 0.5], [0.25, 0.5]]
    """
    scaled: Floats = priors / priors.sum(axis=0, keepdims=True)
    return scaled


def add_prior_noise(priors: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Add noise to priors as in the paper's section 4.2 (table E.9).

    Pi·(1 + eps·(2·gamma − 1)), gamma ~ U[0, 1] per entry, the identity at eps = 0 (the text's
    factor 1 + (2·eps − 1)·gamma is not); clipped to [0, 1]; rows normalized. A row that is clipped
    to all zeros keeps its old values.
    """
    factor = 1 + epsilon * (2 * rng.random(priors.shape) - 1)
    noisy = np.clip(priors * factor, 0, 1)
    sums = noisy.sum(axis=1, keepdims=True)
    result: Floats = np.where(sums > 0, noisy / np.where(sums > 0, sums, 1), priors)
    return result


def _deal_shared(pools: list[Ints], weights: Floats, rng: np.random.Generator) -> list[list[Ints]]:
    """Draw floor((n/M)·w_mk) points of class k, or all, for set m from the whole pool."""
    size = sum(len(pool) for pool in pools) / len(weights)
    wanted = np.floor(size * weights).astype(np.int64)
    return [
        [
            rng.choice(pool, min(count, len(pool)), replace=False)
            for pool, count in zip(pools, row, strict=True)
        ]
        for row in wanted
    ]


def _deal_disjoint(pools: list[Ints], weights: Floats) -> list[list[Ints]]:
    """Cut each class's pool into M parts in proportion to its column; each point is used once."""
    parts = []
    for pool, column in zip(pools, weights.T, strict=True):
        bounds = np.round(np.cumsum(column / column.sum())[:-1] * len(pool))
        parts.append(np.split(pool, np.minimum(bounds, len(pool)).astype(np.int64)))
    return [list(of_set) for of_set in zip(*parts, strict=True)]


SETS, LABELS, TRUTH = "sets.npz", "labels.npz", "truth.npz"


@dataclass(frozen=True)
class SetTruth(ClientTruth):
    """True labels of a client with unlabeled sets: points set by set, twice if in two sets."""

    sets: Ints
    priors: Floats
    true_priors: Floats


def write_sets(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` into clients' sets, and write the files to ``folder``."""
    labels = np.asarray(source.train.labels)
    if (labels == UNLABELED).any():
        raise UserError(
            "A simulation makes unlabeled sets of known class priors, so it needs the label of "
            f"every training point; {int((labels == UNLABELED).sum())} have none.",
            "labels-missing",
        )
    of_owners, validation, server = assign_points(source, num_clients, config)
    settings = config[UnlabeledSetSettings]
    clients = [
        generate_sets(
            labels,
            points,
            source.num_classes,
            client,
            settings,
            config.seed,
            num_clients=num_clients,
        )
        for client, points in enumerate(of_owners)
    ]
    np.savez(
        folder / SETS,
        points=np.concatenate([client.points for client in clients]),
        sets=np.concatenate([client.sets for client in clients]),
        priors=np.concatenate([client.priors for client in clients]),
        drawn_priors=np.concatenate([client.drawn_priors for client in clients]),
        posterior_means=np.concatenate([client.posterior.means for client in clients]),
        concentrations=np.concatenate([client.posterior.concentrations for client in clients]),
        point_bounds=bounds_of([client.points for client in clients]),
        set_bounds=bounds_of([client.priors for client in clients]),
    )
    # All points of a client, because sets that share points need not cover all of them.
    np.savez(
        folder / LABELS,
        points=np.concatenate(of_owners),
        labels=labels[np.concatenate(of_owners)],
        point_bounds=bounds_of(of_owners),
    )
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([labels[client.points] for client in clients]),
        true_priors=np.concatenate([client.true_priors for client in clients]),
        validation=validation,
        server=server,
    )


def refuse_empty_sets(clients: Sequence[ClientTruth], config: RunConfig) -> None:
    """Refuse simulated clients of which a set got no point, and so none could take part."""
    for number, client in enumerate(clients):
        if not isinstance(client, SetTruth):
            return
        empty = set(range(len(client.priors))) - set(client.sets.tolist())
        if empty and config.on_client_failure == "stop":
            key = "dirichlet.min-points" if config.partition == "dirichlet" else "points-per-client"
            raise UserError(
                f"Client {number} has {len(client.points)} points for {len(client.priors)} sets, "
                f"and set {min(empty)} gets none: raise {key}, or lower the number of clients or "
                "sets.",
                "too-few-points",
                setting=key,
            )


def read_sets(directory: Path) -> tuple[SetTruth, ...]:
    """Read the true labels of every client."""
    sets, truth = read_arrays(directory / SETS), read_arrays(directory / TRUTH)
    bounds = [_bounds(sets, client) for client in range(len(sets["point_bounds"]) - 1)]
    return tuple(
        SetTruth(
            points=sets["points"][of_points],
            labels=truth["labels"][of_points],
            sets=sets["sets"][of_points],
            priors=sets["priors"][of_sets],
            true_priors=truth["true_priors"][of_sets],
        )
        for of_points, of_sets in bounds
    )


def open_unlabeled_sets(files: Mapping[str, str], client: int) -> UnlabeledSets:
    """One client's unlabeled sets, from the files ``inputs`` and ``sets``."""
    arrays = read_arrays(Path(files["sets"]))
    of_points, of_sets = _bounds(arrays, client)
    return UnlabeledSets(
        inputs=open_array(Path(files["inputs"])),
        points=arrays["points"][of_points],
        sets=arrays["sets"][of_points],
        priors=arrays["priors"][of_sets],
        drawn_priors=arrays["drawn_priors"][of_sets],
        posterior=Dirichlet(arrays["posterior_means"][of_sets], arrays["concentrations"][of_sets]),
    )


def open_labeled_points(files: Mapping[str, str], client: int) -> LabeledPoints:
    """All points of the same client, in a set or not, with labels, for supervised methods."""
    arrays = read_arrays(Path(files["labels"]))
    bounds = part_of(arrays["point_bounds"], client)
    inputs = open_array(Path(files["inputs"]))
    return LabeledPoints(inputs, arrays["points"][bounds], arrays["labels"][bounds])


def _bounds(arrays: dict[str, NDArray[Any]], client: int) -> tuple[slice, slice]:
    return part_of(arrays["point_bounds"], client), part_of(arrays["set_bounds"], client)


# Labels of simulated clients: who gets which, where they are stored, and files of splits.


def assign_labels_to_clients(
    labels: Sequence[Ints], options: LabelSettings, seed: int
) -> tuple[list[Ints], list[Bools]]:
    """Assign labels to clients' points, and set their new points aside."""
    shares = label_shares(len(labels), options, seed)
    classes = label_classes(labels, options, seed)
    assigned = [
        _deal_client(truth, share, classes[client], options, seed, client)
        for client, (truth, share) in enumerate(zip(labels, shares, strict=True))
    ]
    return [of_client for of_client, _ in assigned], [new for _, new in assigned]


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: number of labels of each client: 0, or equal up to 1."""
    order = _clients_in_order(num_clients, seed)
    chosen = order[: max(1, round(options.labeled_clients * num_clients))]
    if options.fraction:
        parts = np.zeros(num_clients)
        parts[chosen] = options.fraction
        return parts
    shares = np.zeros(num_clients, dtype=np.int64)
    shares[chosen] = options.total // len(chosen)
    shares[chosen[: options.total % len(chosen)]] += 1
    return shares


def _clients_in_order(num_clients: int, seed: int) -> Ints:
    """Order in which clients have labels: the first have them, if only some have."""
    return stream(seed, "labeled-clients").permutation(num_clients)


def label_classes(labels: Sequence[Ints], options: LabelSettings, seed: int) -> list[Ints]:
    """The classes that the labels of each client may be of.

    With ``options.classes_per_client`` = k of K classes they are those of the XCLP authors' code: k
    drawn classes, and their K rotations for K clients in turn; then k drawn anew. So each class is
    at k of K clients. Clients with labels come first, so that this holds among them too.
    """
    labeled_classes = np.unique(np.concatenate([truth[truth != UNLABELED] for truth in labels]))
    count = options.classes_per_client
    if not count:
        return [labeled_classes] * len(labels)
    if count > len(labeled_classes):
        raise UserError(
            f"Setting labels.classes-per-client = {count}: the clients' points have "
            f"{len(labeled_classes)} classes.",
            "setting-unfit-for-data",
            setting="labels.classes-per-client",
        )
    rng = stream(seed, "label-classes")
    classes: list[Ints] = [labeled_classes] * len(labels)
    drawn = labeled_classes[:0]
    for position, client in enumerate(_clients_in_order(len(labels), seed)):
        if position % len(labeled_classes) == 0:
            drawn = rng.permutation(len(labeled_classes))[:count]
        classes[client] = np.sort(labeled_classes[(drawn + position) % len(labeled_classes)])
    return classes


def _deal_client(
    truth: Ints, share: float, classes: Ints, options: LabelSettings, seed: int, client: int
) -> tuple[Ints, Bools]:
    new = np.zeros(len(truth), dtype=np.bool_)
    count = round(options.new_fraction * len(truth))
    new[stream(seed, "new-points", client).permutation(len(truth))[:count]] = True
    able = np.flatnonzero(~new & (truth != UNLABELED))
    share = round(share * len(able)) if options.fraction else int(share)
    able = able[np.isin(truth[able], classes)]
    if share > len(able):
        key, value = (
            ("fraction", options.fraction) if options.fraction else ("total", options.total)
        )
        of_classes = f" of its {len(classes)} classes" if options.classes_per_client else ""
        raise UserError(
            f"Setting labels.{key} = {value}: the share of client {client} is {share} "
            f"labels, and it has only {len(able)} points{of_classes} that can have one.",
            "too-few-points",
        )
    rng = stream(seed, "given-labels", client)
    order = rng.permutation(len(able))
    order = order[_in_turns(truth[able[order]], rng)]
    chosen = able[order[:share]]
    visible = np.full(len(truth), UNLABELED, dtype=np.int64)
    visible[chosen] = truth[chosen]
    return visible, new


def _in_turns(labels: Ints, rng: np.random.Generator) -> Ints:
    """Order of ``labels`` in which classes alternate, each until it runs out.

    The order within a turn is random. A fixed order would favor the first classes in every client
    whose number of labels is not a multiple of its number of classes.
    """
    turn, rank = np.empty_like(labels), np.empty_like(labels)
    for position, k in enumerate(rng.permutation(np.unique(labels))):
        of_class = np.flatnonzero(labels == k)
        turn[of_class], rank[of_class] = np.arange(len(of_class)), position
    return np.lexsort((rank, turn))


ASSIGNED = "given.npz"
_SAVED = ("points", "labels", "new", "bounds", "validation", "server", "fingerprint")


@dataclass(frozen=True)
class LabelTruth(ClientTruth):
    """True labels of a client with partly labeled points, each once."""

    observed: Ints
    new: Bools


class LabelAssignment(NamedTuple):
    """Clients with their labels, and the rows that the server keeps."""

    clients: tuple[LabelTruth, ...]
    validation: Ints
    server: Ints


def write_once(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` and its labels over the clients, and write the files to ``folder``."""
    options = config[LabelSettings]
    if options.split:
        labels = np.asarray(source.train.labels)
        assignment = load_split(Path(options.split), num_clients, labels, source.class_names)
    else:
        assignment = _deal(source, num_clients, config)
    clients = _with_labels_shown(assignment.clients, label_scenario(config), options)
    np.savez(folder / ASSIGNED, **_assigned_arrays(clients))
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([client.labels for client in clients]),
        validation=assignment.validation,
        server=assignment.server,
    )


def _deal(source: Source, num_clients: int, config: RunConfig) -> LabelAssignment:
    of_owners, validation, server = assign_points(source, num_clients, config)
    truth = [np.asarray(source.train.labels)[points] for points in of_owners]
    options = config[LabelSettings]
    if label_scenario(config) != "clients":  # none are assigned: the number cannot be too large
        options = options.model_copy(update={"total": 0, "fraction": 0.0, "classes_per_client": 0})
    visible, new = assign_labels_to_clients(truth, options, config.seed)
    clients = tuple(
        LabelTruth(*parts) for parts in zip(of_owners, truth, visible, new, strict=True)
    )
    return LabelAssignment(clients, validation, server)


def label_scenario(config: RunConfig) -> str:
    """``"clients"`` have labels for some points, for ``"all"`` points, or only the ``"server"``.

    Clients of methods that learn from all labels always have them.
    """
    if find_method(config.method).data == "fully-labeled":
        return "all"
    return config[LabelSourceSettings].labels_at


def _with_labels_shown(
    clients: Sequence[LabelTruth], scenario: str, options: LabelSettings
) -> list[LabelTruth]:
    """``clients`` with the labels that the scenario and ``labels.without-client`` give them."""
    without = options.without_client
    if without >= len(clients):
        raise UserError(
            f"Setting labels.without-client = {without}: the run has clients 0 to "
            f"{len(clients) - 1}, and -1 withholds no labels.",
            "setting-out-of-range",
            setting="labels.without-client",
        )
    shown = []
    for number, client in enumerate(clients):
        visible = client.observed
        if scenario == "server" or number == without:
            visible = np.full_like(visible, UNLABELED)
        elif scenario == "all":
            visible = np.where(client.new, UNLABELED, client.labels)
        shown.append(replace(client, observed=visible))
    return shown


def _assigned_arrays(clients: Sequence[LabelTruth]) -> dict[str, Any]:
    columns: dict[str, list[NDArray[Any]]] = {
        "points": [client.points for client in clients],
        "labels": [client.observed for client in clients],
        "new": [client.new for client in clients],
    }
    bounds = bounds_of(columns["points"])
    return {name: np.concatenate(parts) for name, parts in columns.items()} | {"bounds": bounds}


def read_assigned_labels(directory: Path) -> tuple[LabelTruth, ...]:
    """Read the true labels and the given ones of every client."""
    return _clients(read_arrays(directory / ASSIGNED), read_arrays(directory / TRUTH)["labels"])


def _clients(arrays: Mapping[str, NDArray[Any]], truth: Ints) -> tuple[LabelTruth, ...]:
    bounds = arrays["bounds"]
    parts = [part_of(bounds, client) for client in range(len(bounds) - 1)]
    return tuple(
        LabelTruth(arrays["points"][part], truth[part], arrays["labels"][part], arrays["new"][part])
        for part in parts
    )


def open_partly_labeled_points(files: Mapping[str, str], client: int) -> PartlyLabeledPoints:
    """One client's points, from the files ``inputs`` and ``given``."""
    arrays = read_arrays(Path(files["given"]))
    part = part_of(arrays["bounds"], client)
    return PartlyLabeledPoints(
        inputs=open_array(Path(files["inputs"])),
        points=arrays["points"][part],
        labels=arrays["labels"][part],
        new=arrays["new"][part],
    )


# The file of a run


def save_split(file: Path, assignment: LabelAssignment, train_labels: Ints) -> None:
    """Write ``assignment`` for `labels.split` of later runs; ``train_labels``: of all points."""
    arrays = _assigned_arrays(assignment.clients) | {
        "validation": assignment.validation,
        "server": assignment.server,
        "fingerprint": np.array(_fingerprint(train_labels)),
    }

    def write(part: Path) -> None:
        with part.open("wb") as stream:
            np.savez(stream, **arrays)

    replace_file(file, write)


def split_file(named: str) -> list[Path]:
    """The file that ``labels.split`` names, if it names one."""
    if named and not Path(named).is_file():
        raise _refusal(named, "there is no such file")
    return [Path(named)] if named else []


def load_split(
    file: Path, num_clients: int, train_labels: Ints, class_names: Sequence[str]
) -> LabelAssignment:
    """Read a file of :func:`save_split`, or with ``.txt`` one of the XCLP authors' code.

    True labels come from ``train_labels``.
    """
    if file.suffix.lower() == ".txt":
        return _load_released(file, num_clients, train_labels, class_names)
    try:
        with np.load(file) as archive:  # `read_arrays` caches: another run may overwrite it
            arrays = {name: archive[name] for name in _SAVED}
    except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
        raise _refusal(file, "it is no split.npz of a run on partly labeled data") from error
    if str(arrays["fingerprint"]) != _fingerprint(train_labels):
        raise _refusal(file, "it is of a data set with other training labels than this run's")
    clients = _clients(arrays, train_labels[arrays["points"]])
    _check_number(file, len(clients), num_clients)
    return LabelAssignment(clients, arrays["validation"], arrays["server"])


def _check_number(file: Path, clients: int, num_clients: int) -> None:
    if clients != num_clients:
        raise _refusal(file, f"it is of {clients} clients, and this run has {num_clients}")


def _load_released(
    file: Path, num_clients: int, train_labels: Ints, class_names: Sequence[str]
) -> LabelAssignment:
    """Read a split file of the XCLP authors' code: who holds each point, and its label or none.

    The points of the data set that it does not name are for validation: the authors' code takes
    its validation points out of the training data before it splits them.
    """
    try:
        split = read_released_split(file, train_labels, class_names)
    except ValueError as error:
        raise _refusal(file, str(error)) from error
    is_owned = split.owners >= 0
    _check_number(file, int(split.owners.max(initial=-1)) + 1, num_clients)
    clients = []
    for client in range(num_clients):
        of_client = split.owners == client
        points, shown = split.points[of_client], split.labeled[of_client]
        truth = train_labels[points]
        visible = np.where(shown, truth, UNLABELED)
        clients.append(LabelTruth(points, truth, visible, np.zeros(len(points), dtype=np.bool_)))
    unnamed = np.setdiff1d(np.flatnonzero(train_labels != UNLABELED), split.points)
    return LabelAssignment(tuple(clients), unnamed, split.points[~is_owned])


def _fingerprint(labels: Ints) -> str:
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def _refusal(file: str | Path, reason: str) -> UserError:
    return UserError(
        f"Setting labels.split = {str(file)!r}: {reason}.",
        "split-file-unfit",
        setting="labels.split",
    )


SERVER = -1
"""The owner of points that the server holds."""
_LINE = re.compile(r"([0-9]{1,12})_\S+\s+(\S+)\s+(server|[0-9]{1,9})\s+([01])")
"""Row of an image and the rest of its name, class, client, and whether the label is given."""
_PART, _HUB_PARTS = 10_000, (3, 2, 1, 4, 0)
_EXAMPLE = "14365_airplane.png airplane 95 0"


class ReleasedSplit(NamedTuple):
    """Points by ascending row.

    Attributes
    ----------
    points : ``(n,)``, rows of the training data.
    owners : ``(n,)``, number of the client, or :data:`SERVER`.
    labeled : ``(n,)``, whether the label is given.
    """

    points: Ints
    owners: Ints
    labeled: Bools


def read_released_split(
    file: Path, train_labels: Ints, class_names: Sequence[str]
) -> ReleasedSplit:
    """Read a split file of the XCLP authors' code."""
    points, classes, owners, labeled = _parse(file)
    if points.max(initial=-1) >= len(train_labels):
        raise ValueError(
            f"it names row {points.max()} of the training data, which has {len(train_labels)}"
        )
    rows, counts = np.unique(points, return_counts=True)
    if len(rows) < len(points):
        raise ValueError(f"it names row {rows[counts > 1][0]} more than once")
    numbers = {name: number for number, name in enumerate(class_names)}
    truth = np.array([numbers.get(name, -2) for name in classes], dtype=np.int64)
    for order in _orders(len(train_labels)):
        if np.array_equal(train_labels[order[points]], truth):
            points = order[points]
            break
    else:
        line = int(np.flatnonzero(train_labels[points] != truth)[0]) + 1
        raise ValueError(
            f"line {line} has another class than row {points[line - 1]} of the training data: it "
            "is of other data, or the rows of the data set are in another order"
        )
    ascending = np.argsort(points)
    return ReleasedSplit(points[ascending], owners[ascending], labeled[ascending])


def _parse(file: Path) -> tuple[Ints, list[str], Ints, Bools]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError("it cannot be read as text") from error
    points, classes, owners, labeled = [], [], [], []
    for position, line in enumerate(lines, start=1):
        words = _LINE.fullmatch(line.strip())
        if words is None:
            raise ValueError(
                f"line {position} is not of the form of the XCLP authors' split files, as "
                f"{_EXAMPLE!r}: a row of the training data and a name, class, client or server, "
                "1 or 0"
            )
        points.append(int(words[1]))
        classes.append(words[2])
        owners.append(SERVER if words[3] == "server" else int(words[3]))
        labeled.append(words[4] == "1")
    return (
        np.array(points, dtype=np.int64),
        classes,
        np.array(owners, dtype=np.int64),
        np.array(labeled, dtype=np.bool_),
    )


def _orders(size: int) -> Iterator[Ints]:
    """Orders that a data set may have its training points in: row by number in the file's names.

    The authors take the five parts of CIFAR-10 in turn. The data set on the Hugging Face hub has
    them as they lie in the archive.
    """
    yield np.arange(size, dtype=np.int64)
    if size == _PART * len(_HUB_PARTS):
        start = np.argsort(_HUB_PARTS) * _PART
        yield np.repeat(start, _PART) + np.tile(np.arange(_PART), len(_HUB_PARTS))


FORMAT_VERSION = 6
SHAPING = ("partition", "points-per-client", "validation-fraction", "server-fraction", "seed")
"""Shared settings that determine the split."""
NOT_OF_LABELS = ("labels.new-fraction", "labels.without-client", "labels.split")
"""Settings of labels that also have an effect if all points have labels, or none."""


@dataclass(frozen=True)
class Split:
    """A simulated federation.

    Attributes
    ----------
    validation, server : rows of the training images that the server keeps, with labels, to select
        the best round and to train on.
    clients : one entry per client, with all its points and their true labels; a
        :class:`~fedul_flwr.data.split.SetTruth`, or a
        :class:`~fedul_flwr.data.split.LabelTruth` of a method on partly labeled data.
    """

    directory: Path
    validation: Ints
    server: Ints
    clients: tuple[ClientTruth, ...]


def build_split(source_directory: Path, num_clients: int, config: RunConfig) -> Split:
    """Build the federation that ``config`` describes, or open it if it exists."""
    described = [FORMAT_VERSION, str(source_directory), num_clients, split_settings(config)]
    key = cache_key(described, split_file(config[LabelSettings].split))
    directory = cache_directory() / "splits" / key

    def build(folder: Path) -> None:
        _write(folder, source_directory, num_clients, config)

    return read_split(build_once(directory, build))


def split_settings(config: RunConfig) -> dict[str, Scalar]:
    """The settings that determine the clients' points and their form, for a given data set."""
    partly_labeled = find_method(config.method).data in PARTLY_LABELED
    kind: type[Settings] = LabelSettings if partly_labeled else UnlabeledSetSettings
    of_table = _of_table(config[kind], kind)
    scenario: dict[str, Scalar] = {}
    if partly_labeled:
        # That a method uses all labels is not a setting: its runs are compared with others on the
        # same points, although these have another key here.
        at = label_scenario(config)
        scenario = {"method.data": "fully-labeled"} if at == "all" else {"scenario.labels-at": at}
        if at != "clients":
            of_table = {key: of_table[key] for key in NOT_OF_LABELS}
    if of_table.get("labels.split"):  # it replaces all other settings, and the seed
        names = ("labels.split", "labels.without-client")
        return {key: of_table[key] for key in names} | scenario
    shared = {key: getattr(config, key.replace("-", "_")) for key in SHAPING}
    if partition := SECTIONS.get(config.partition):
        shared |= _of_table(config[partition], partition)
    return shared | of_table | scenario


def _of_table(values: Settings, kind: type[Settings]) -> dict[str, Scalar]:
    """The settings of class ``kind``, of which ``values`` may have more, with their keys."""
    return {
        f"{kind.table}.{key}": getattr(values, name)
        for key, name in zip(kind.names(), kind.model_fields, strict=True)
    }


def _write(folder: Path, source_directory: Path, num_clients: int, config: RunConfig) -> None:
    partly_labeled = find_method(config.method).data in PARTLY_LABELED
    write = write_once if partly_labeled else write_sets
    write(folder, read_source(source_directory), num_clients, config)


def read_split(directory: Path) -> Split:
    """Open a federation with all its files, as the server does."""
    truth = read_arrays(directory / TRUTH)
    partly_labeled = (directory / ASSIGNED).exists()
    clients = read_assigned_labels(directory) if partly_labeled else read_sets(directory)
    return Split(directory, truth["validation"], truth["server"], clients)


def client_files(
    source_directory: Path, split_directory: Path, data: DataKind = "unlabeled-sets"
) -> dict[str, str]:
    """Paths of the files that a simulation's clients need for this kind of data."""
    files = {"inputs": source_directory / TRAIN_INPUTS}
    if data in PARTLY_LABELED:
        files["given"] = split_directory / ASSIGNED
    else:
        files["sets"] = split_directory / SETS
    if data == "labels":
        files["labels"] = split_directory / LABELS
    return {name: str(path) for name, path in files.items()}
