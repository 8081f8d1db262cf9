"""Labels of simulated clients: who gets which, where they are stored, and files of splits.

Clients get the paths of two files, ``given.npz`` and the images. ``truth.npz`` is for the
simulation only: true labels, and the rows that the server keeps.

The XCLP authors' split files have a line for each point, four words: the name of its image, its
class, the client that holds it or ``server``, and 1 if its label is given, else 0::

    14365_airplane.png airplane 95 0

The authors' scripts number the images of CIFAR-10 and CIFAR-100 in the order of the data set, so
the number in a name is a row of the training data. Each line's class is checked against it. Images
of Mini-ImageNet have names of another form, and a file of theirs is refused.
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

from fedul_flwr.config.method_settings import LabelSettings, LabelSourceSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.partition import ClientTruth, assign_points
from fedul_flwr.data.safe_files import open_array, read_arrays, replace_file
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import (
    UNLABELED,
    Bools,
    Floats,
    Ints,
    PartlyLabeledPoints,
    Source,
    bounds_of,
    part_of,
)
from fedul_flwr.errors import UserError


def assign_labels_to_clients(
    labels: Sequence[Ints], options: LabelSettings, seed: int
) -> tuple[list[Ints], list[Bools]]:
    """Assign labels to clients' points, and set their new points aside.

    Parameters
    ----------
    labels : one ``(n_c,)`` per client, true labels of its points; ``-1`` for unknown.
    options : settings; ``without_client`` and ``split`` are not used.
    seed : the run's seed. A larger total or fraction includes all labels of a smaller one, and a
        larger fraction of clients with labels includes the clients of a smaller one.

    Returns
    -------
    observed : one ``(n_c,)`` per client, its given labels, ``-1`` for points without.
    new : one ``(n_c,)`` per client, true for points to predict; none of them has a given label.
    """
    shares = label_shares(len(labels), options, seed)
    classes = label_classes(labels, options, seed)
    assigned = [
        _deal_client(truth, share, classes[client], options, seed, client)
        for client, (truth, share) in enumerate(zip(labels, shares, strict=True))
    ]
    return [of_client for of_client, _ in assigned], [new for _, new in assigned]


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: number of labels of each client: 0, or equal up to 1.

    With ``options.fraction`` it is the fraction of its points that get a label.
    """
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


ASSIGNED, TRUTH = "given.npz", "truth.npz"
_SAVED = ("points", "labels", "new", "bounds", "validation", "server", "fingerprint")


@dataclass(frozen=True)
class LabelTruth(ClientTruth):
    """True labels of a client with partly labeled points, each once.

    Attributes
    ----------
    observed : its given labels, ``-1`` for none.
    new : its points to predict.
    """

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
    """Read a split file of the XCLP authors' code.

    Parameters
    ----------
    train_labels : ``(N,)``, true labels of the training data, -1 for none.
    class_names : names of the classes ``0..K-1``.

    Raises
    ------
    ValueError
        If the file is not of this form, names a point twice, or names points or classes that the
        data set does not have. The message has no line's content.
    """
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
