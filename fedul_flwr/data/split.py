"""A simulated federation on disk: the clients' data, and the true labels for the simulation.

The server of a simulation builds it once; clients get the paths from :func:`client_files`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bools, Floats, Ints, bounds_of, part_of
from fedul_flwr.config.base import AUTO, Scalar, Settings
from fedul_flwr.config.method_settings import (
    LabelSettings,
    LabelSourceSettings,
    UnlabeledSetSettings,
)
from fedul_flwr.config.methods import PARTLY_LABELED, DataKind, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.config.user_files import read_text
from fedul_flwr.data.partition import ClientTruth, assign_points
from fedul_flwr.data.safe_files import (
    build_once,
    cache_directory,
    cache_key,
    open_array,
    read_arrays,
    replace_file,
)
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_priors import Dirichlet, effective_labels
from fedul_flwr.data.sources import TRAIN_INPUTS, read_source
from fedul_flwr.data.types import (
    UNLABELED,
    LabeledPoints,
    PartlyLabeledPoints,
    Source,
    UnlabeledSets,
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


def settings_of_client(
    settings: UnlabeledSetSettings, client: int, num_clients: int
) -> UnlabeledSetSettings:
    """The settings with this client's number of sets, in equal steps from the first to the last."""
    if not settings.num_sets_max:
        return settings
    steps = np.linspace(settings.num_sets, settings.num_sets_max, num_clients).round()
    return settings.model_copy(update={"num_sets": int(steps[client])})


def generate_sets(
    labels: Ints,
    points: Ints,
    num_classes: int,
    client: int,
    settings: UnlabeledSetSettings,
    seed: int,
) -> GeneratedSets:
    """Assign a client's points to M unlabeled sets with different class priors."""
    rng, num_sets = stream(seed, "sets", client), settings.num_sets
    if settings.shared_prior_draws:
        # For as many sets as any client has.
        largest, shared_rng = max(num_sets, settings.num_sets_max), stream(seed, "same-priors")
        draws = [
            draw_priors(largest, num_classes, settings.priors, shared_rng)
            for _ in range(settings.shared_prior_draws)
        ]
        # Every column sums to 1, so that all sets together need equally many of each class. Set m
        # takes n/M times its row, so M sets contain K/M of a client's n points (authors' code).
        weights = np.sum(draws, axis=0)[:num_sets]
        weights = weights / weights.sum(axis=0, keepdims=True)
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


SETS, LABELS, ASSIGNED, TRUTH = "sets.npz", "labels.npz", "given.npz", "truth.npz"
"""Files of a simulated federation: for clients by their kind of data, and for the simulation."""


def _joined(bounds: str, clients: Sequence[object], *names: str) -> dict[str, Any]:
    """Arrays of all clients one after the other, and where each client's part lies."""
    parts = {name: [getattr(client, name) for client in clients] for name in names}
    joined = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return joined | {bounds: bounds_of(parts[names[0]])}


def _parts(arrays: Mapping[str, NDArray[Any]], bounds: str = "bounds") -> Iterator[slice]:
    """Where each client's part lies."""
    return (part_of(arrays[bounds], client) for client in range(len(arrays[bounds]) - 1))


@dataclass(frozen=True)
class SetTruth(ClientTruth):
    """True labels of a client with unlabeled sets: points set by set, twice if in two sets."""

    sets: Ints
    priors: Floats
    true_priors: Floats


def write_sets(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` into clients' sets, and write the files to ``folder``."""
    labels = np.asarray(source.train.labels)
    if missing := int((labels == UNLABELED).sum()):
        needs = "Unlabeled sets of known class priors are made from"
        if find_method(config.method).data == "labels":
            needs = f"Method {config.method!r} learns from"
        raise UserError(
            f"{needs} the label of every training point, and {missing:,} of {len(labels):,} have "
            "none. Methods 'labels-only', 'all-labels' and 'fixmatch' learn from the labels that "
            "there are.",
            "labels-missing",
        )
    of_owners, validation, server = assign_points(source, num_clients, config)
    settings = config[UnlabeledSetSettings]
    clients = []
    for client, points in enumerate(of_owners):
        of_client = settings_of_client(settings, client, num_clients)
        clients.append(
            generate_sets(labels, points, source.num_classes, client, of_client, config.seed)
        )
    posteriors = [client.posterior for client in clients]
    of_points = _joined("point_bounds", clients, "points", "sets")
    np.savez(
        folder / SETS,
        **of_points,
        **_joined("set_bounds", clients, "priors", "drawn_priors"),
        posterior_means=np.concatenate([posterior.means for posterior in posteriors]),
        concentrations=np.concatenate([posterior.concentrations for posterior in posteriors]),
    )
    # All points of a client, because sets that share points need not cover all of them.
    everything = [ClientTruth(points, labels[points]) for points in of_owners]
    np.savez(folder / LABELS, **_joined("point_bounds", everything, "points", "labels"))
    np.savez(
        folder / TRUTH,
        labels=labels[of_points["points"]],
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


def _read_sets(directory: Path) -> tuple[SetTruth, ...]:
    """The true labels of every client."""
    sets, truth = read_arrays(directory / SETS), read_arrays(directory / TRUTH)
    return tuple(
        SetTruth(
            points=sets["points"][points],
            labels=truth["labels"][points],
            sets=sets["sets"][points],
            priors=sets["priors"][rows],
            true_priors=truth["true_priors"][rows],
        )
        for points, rows in zip(
            _parts(sets, "point_bounds"), _parts(sets, "set_bounds"), strict=True
        )
    )


def open_unlabeled_sets(files: Mapping[str, str], client: int) -> UnlabeledSets:
    """One client's unlabeled sets, from the files ``inputs`` and ``sets``."""
    arrays = read_arrays(Path(files["sets"]))
    points, rows = (part_of(arrays[name], client) for name in ("point_bounds", "set_bounds"))
    return UnlabeledSets(
        inputs=open_array(Path(files["inputs"])),
        points=arrays["points"][points],
        sets=arrays["sets"][points],
        priors=arrays["priors"][rows],
        drawn_priors=arrays["drawn_priors"][rows],
        posterior=Dirichlet(arrays["posterior_means"][rows], arrays["concentrations"][rows]),
    )


def open_labeled_points(files: Mapping[str, str], client: int) -> LabeledPoints:
    """All points of the same client, in a set or not, with labels, for supervised methods."""
    arrays = read_arrays(Path(files["labels"]))
    part = part_of(arrays["point_bounds"], client)
    inputs = open_array(Path(files["inputs"]))
    return LabeledPoints(inputs, arrays["points"][part], arrays["labels"][part])


# Labels of simulated clients: who gets which, where they are stored, and files of splits.


def assign_labels_to_clients(
    labels: Sequence[Ints], options: LabelSettings, seed: int
) -> tuple[list[Ints], list[Bools]]:
    """Labels that each client has of its points, -1 for none, and which points are new.

    With ``options.total = "auto"`` each client with labels has all that its points have.
    """
    shares = label_shares(len(labels), options, seed)
    classes = label_classes(labels, options, seed)
    shown, new_points = [], []
    for client, truth in enumerate(labels):
        new = np.zeros(len(truth), dtype=np.bool_)
        count = round(options.new_fraction * len(truth))
        new[stream(seed, "new-points", client).permutation(len(truth))[:count]] = True
        able = np.flatnonzero(~new & (truth != UNLABELED))
        share = round(shares[client] * len(able)) if options.fraction else int(shares[client])
        able = able[np.isin(truth[able], classes[client])]
        if _takes_all(options):
            share = len(able) if shares[client] else 0
        if share > len(able):
            key = "fraction" if options.fraction else "total"
            raise UserError(
                f"Setting labels.{key} = {getattr(options, key)}: the share of client {client} is "
                f"{share} labels, and it has only {len(able)} points of its "
                f"{len(classes[client])} classes that can have one.",
                "too-few-points",
            )
        rng = stream(seed, "given-labels", client)
        order = rng.permutation(len(able))
        chosen = able[order[_in_turns(truth[able[order]], rng)][:share]]
        visible = np.full(len(truth), UNLABELED, dtype=np.int64)
        visible[chosen] = truth[chosen]
        shown.append(visible)
        new_points.append(new)
    return shown, new_points


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: number of labels of each client: 0, or equal up to 1; or the fraction of its points
    that has labels."""
    order = _clients_in_order(num_clients, seed)
    chosen = order[: max(1, round(options.labeled_clients * num_clients))]
    if options.fraction or _takes_all(options):
        parts = np.zeros(num_clients)
        parts[chosen] = options.fraction or 1.0
        return parts
    shares = np.zeros(num_clients, dtype=np.int64)
    shares[chosen] = options.total // len(chosen)
    shares[chosen[: options.total % len(chosen)]] += 1
    return shares


def _takes_all(options: LabelSettings) -> bool:
    """Whether clients use all labels that their points have."""
    return options.total == AUTO and not options.fraction


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


@dataclass(frozen=True)
class LabelTruth(ClientTruth):
    """True labels of a client with partly labeled points, each once."""

    observed: Ints
    new: Bools


@dataclass(frozen=True)
class Split:
    """A simulated federation.

    Attributes
    ----------
    clients : one entry per client, with the points that it learns from and their true labels; a
        :class:`SetTruth` where these are sets, a :class:`LabelTruth` where they are partly labeled.
    validation, server : rows of the training images that the server keeps, with labels, to select
        the best round and to train on.
    """

    clients: tuple[ClientTruth, ...]
    validation: Ints
    server: Ints
    directory: Path = Path()

    @property
    def label_truths(self) -> list[LabelTruth]:
        """The clients with partly labeled points."""
        return [client for client in self.clients if isinstance(client, LabelTruth)]


SIMULATED_LABELS = 100
"""Labels of all clients together, where every training point has one and no setting says more."""


def write_labels(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` and its labels over the clients, and write the files to ``folder``."""
    options = config[LabelSettings]
    if options.split:
        labels = np.asarray(source.train.labels)
        assignment = load_split(Path(options.split), num_clients, labels, source.class_names)
    else:
        assignment = _deal(source, num_clients, config)
    clients = _with_labels_shown(assignment.label_truths, label_scenario(config), options)
    np.savez(folder / ASSIGNED, **_assigned_arrays(clients))
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([client.labels for client in clients]),
        validation=assignment.validation,
        server=assignment.server,
    )


def _deal(source: Source, num_clients: int, config: RunConfig) -> Split:
    of_owners, validation, server = assign_points(source, num_clients, config)
    truth = [np.asarray(source.train.labels)[points] for points in of_owners]
    options = config[LabelSettings]
    if label_scenario(config) != "clients":  # none are assigned: the number cannot be too large
        options = options.model_copy(update={"total": 0, "fraction": 0.0, "classes_per_client": 0})
    elif options.total == AUTO and (np.asarray(source.train.labels) != UNLABELED).all():
        options = options.model_copy(update={"total": SIMULATED_LABELS})
    visible, new = assign_labels_to_clients(truth, options, config.seed)
    parts = zip(of_owners, truth, visible, new, strict=True)
    clients = tuple(LabelTruth(*of_client) for of_client in parts)
    return Split(clients, validation, server)


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
    arrays = _joined("bounds", clients, "points", "observed", "new")
    return arrays | {"labels": arrays.pop("observed")}


def _label_truths(arrays: Mapping[str, NDArray[Any]], truth: Ints) -> tuple[LabelTruth, ...]:
    """The true labels and the visible ones of every client."""
    return tuple(
        LabelTruth(arrays["points"][part], truth[part], arrays["labels"][part], arrays["new"][part])
        for part in _parts(arrays)
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


def save_split(file: Path, split: Split, train_labels: Ints) -> None:
    """Write ``split``, with labels also for `labels.split` of later runs; ``train_labels``: of all
    points."""
    if split.label_truths:
        arrays = _assigned_arrays(split.label_truths)
    elif all(isinstance(client, SetTruth) for client in split.clients):
        arrays = _joined("bounds", split.clients, "points", "sets")
        arrays |= _joined("set_bounds", split.clients, "priors", "true_priors")
    else:
        arrays = _joined("bounds", split.clients, "points")
    arrays |= {
        "validation": split.validation,
        "server": split.server,
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
) -> Split:
    """Read a file of :func:`save_split`, or with ``.txt`` one of the XCLP authors' code.

    True labels come from ``train_labels``.
    """
    if file.suffix.lower() == ".txt":
        assignment = _load_released(file, train_labels, class_names)
    else:
        try:
            with np.load(file) as archive:  # `read_arrays` caches: another run may overwrite it
                arrays = {name: archive[name] for name in archive.files}
            fingerprint, points, _ = str(arrays["fingerprint"]), arrays["points"], arrays["new"]
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise _refusal(file, "it is no split.npz of a run on partly labeled data") from error
        if fingerprint != _fingerprint(train_labels):
            raise _refusal(file, "it is of a data set with other training labels than this run's")
        clients = _label_truths(arrays, train_labels[points])
        assignment = Split(clients, arrays["validation"], arrays["server"])
    if len(assignment.clients) != num_clients:
        raise _refusal(
            file, f"it is of {len(assignment.clients)} clients, and this run has {num_clients}"
        )
    return assignment


def _fingerprint(labels: Ints) -> str:
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def _refusal(file: str | Path, reason: str) -> UserError:
    return UserError(
        f"Setting labels.split = {str(file)!r}: {reason}.",
        "split-file-unfit",
        setting="labels.split",
    )


_LINE = re.compile(r"([0-9]{1,12})_\S+\s+(\S+)\s+(server|[0-9]{1,9})\s+([01])")
"""Row of an image and the rest of its name, class, client, and whether the label is given."""
_PART, _HUB_PARTS = 10_000, (3, 2, 1, 4, 0)


def _load_released(file: Path, train_labels: Ints, class_names: Sequence[str]) -> Split:
    """Read a split file of the XCLP authors' code: who holds each point, and its label or none.

    The points of the data set that it does not name are for validation: the authors' code takes
    its validation points out of the training data before it splits them.
    """
    lines = [line.strip() for line in (read_text(file) or "").splitlines()]
    words = [_LINE.fullmatch(line) for line in lines]
    numbers = {name: number for number, name in enumerate(class_names)}
    rows = [(int(w[1]), numbers.get(w[2], -2), w[3], w[4] == "1") for w in words if w is not None]
    points = np.array([row[0] for row in rows], dtype=np.int64)
    truth = np.array([row[1] for row in rows], dtype=np.int64)
    size = len(train_labels)
    _, of_row, counts = np.unique(points, return_inverse=True, return_counts=True)
    is_right = (points < size) & (counts[of_row] == 1)
    orders = (order for order in _orders(size) if is_right.all())
    fitting = [o[points] for o in orders if np.array_equal(train_labels[o[points]], truth)]
    if None in words or not fitting:
        is_right &= train_labels[np.minimum(points, size - 1)] == truth
        odd = words.index(None) if None in words else int(is_right.argmin())
        raise _refusal(
            file,
            f"line {odd + 1} is {lines[odd]!r}; it must name a row of this run's training data, "
            "once, with its class, its client or the server, and 1 or 0, as '14365_airplane.png "
            "airplane 95 0'",
        )
    points = fitting[0]
    by_row = np.argsort(points)
    owners = np.array([-1 if row[2] == "server" else int(row[2]) for row in rows])[by_row]
    labeled, points = np.array([row[3] for row in rows])[by_row], points[by_row]
    visible = np.where(labeled, train_labels[points], UNLABELED)
    clients = []
    for client in range(int(owners.max(initial=-1)) + 1):
        at = owners == client
        new = np.zeros(int(at.sum()), dtype=np.bool_)
        clients.append(LabelTruth(points[at], train_labels[points[at]], visible[at], new))
    unnamed = np.setdiff1d(np.flatnonzero(train_labels != UNLABELED), points)
    return Split(tuple(clients), unnamed, points[owners < 0])


def _orders(size: int) -> Iterator[Ints]:
    """Orders that a data set may have its training points in: row by number in the file's names.

    The authors take the five parts of CIFAR-10 in turn. The data set on the Hugging Face hub has
    them as they lie in the archive.
    """
    yield np.arange(size, dtype=np.int64)
    if size == _PART * len(_HUB_PARTS):
        start = np.argsort(_HUB_PARTS) * _PART
        yield np.repeat(start, _PART) + np.tile(np.arange(_PART), len(_HUB_PARTS))


FORMAT_VERSION = 7
SHAPING = ("partition", "points-per-client", "validation-fraction", "server-fraction", "seed")
"""Shared settings that determine the split."""
NOT_OF_LABELS = ("labels.new-fraction", "labels.without-client", "labels.split")
"""Settings of labels that also have an effect if all points have labels, or none."""


def build_split(source_directory: Path, num_clients: int, config: RunConfig) -> Split:
    """Build the federation that ``config`` describes, or open it if it exists."""
    described = [FORMAT_VERSION, str(source_directory), num_clients, split_settings(config)]
    key = cache_key(described, split_file(config[LabelSettings].split))
    directory = cache_directory() / "splits" / key

    def build(folder: Path) -> None:
        _write(folder, source_directory, num_clients, config)

    split = read_split(build_once(directory, build))
    if find_method(config.method).data == "labels":  # of all points, in a set or not
        arrays = read_arrays(split.directory / LABELS)
        parts = _parts(arrays, "point_bounds")
        truths = (ClientTruth(arrays["points"][part], arrays["labels"][part]) for part in parts)
        split = replace(split, clients=tuple(truths))
    return split


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
    write = write_labels if partly_labeled else write_sets
    write(folder, read_source(source_directory), num_clients, config)


def read_split(directory: Path) -> Split:
    """Open a federation with all its files, as the server does."""
    truth = read_arrays(directory / TRUTH)
    clients: tuple[ClientTruth, ...]
    if (directory / ASSIGNED).exists():
        clients = _label_truths(read_arrays(directory / ASSIGNED), truth["labels"])
    else:
        clients = _read_sets(directory)
    return Split(clients, truth["validation"], truth["server"], directory)


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
