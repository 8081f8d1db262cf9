"""A simulated federation of partly labeled points on disk, and as a file for later runs.

Clients get the paths of two files, ``given.npz`` and the images. ``truth.npz`` is for the
simulation only: true labels, and the rows that the server keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.labels import LabelSettings
from fedul_flwr.config.matching import LabelPlaceSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.assign_labels import assign_labels_to_clients
from fedul_flwr.data.cache import open_array
from fedul_flwr.data.federated_split import (
    ClientTruth,
    assign_points,
    bounds_of,
    part_of,
    read_arrays,
)
from fedul_flwr.data.released_split import read_released_split
from fedul_flwr.data.safe_files import replace_file
from fedul_flwr.data.types import UNLABELED, Bools, Ints, PartlyLabeledPoints, Source
from fedul_flwr.errors import UserError

GIVEN, TRUTH = "given.npz", "truth.npz"
_SAVED = ("points", "labels", "new", "bounds", "validation", "server", "fingerprint")


@dataclass(frozen=True)
class LabelTruth(ClientTruth):
    """True labels of a client with partly labeled points, each once.

    Attributes
    ----------
    given : its given labels, ``-1`` for none.
    new : its points to predict.
    """

    given: Ints
    new: Bools


class LabelAssignment(NamedTuple):
    """Clients with their labels, and the rows that the server keeps."""

    clients: tuple[LabelTruth, ...]
    validation: Ints
    server: Ints


def write_given(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` and its labels over the clients, and write the files to ``folder``.

    Raises
    ------
    UserError
        If the settings cannot be met with these data, or ``labels.split`` belongs to other data.
    """
    options = config[LabelSettings]
    if options.split:
        labels = np.asarray(source.train.labels)
        dealt = load_split(Path(options.split), num_clients, labels, source.class_names)
    else:
        dealt = _deal(source, num_clients, config)
    clients = _withhold(_of_scenario(dealt.clients, config), options.without_client)
    np.savez(folder / GIVEN, **_given_arrays(clients))
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([client.labels for client in clients]),
        validation=dealt.validation,
        server=dealt.server,
    )


def _deal(source: Source, num_clients: int, config: RunConfig) -> LabelAssignment:
    held, validation, server = assign_points(source, num_clients, config)
    truth = [np.asarray(source.train.labels)[points] for points in held]
    options = config[LabelSettings]
    if (
        who_has_labels(config) != "clients"
    ):  # no labels are assigned, so the number cannot be too large
        options = options.model_copy(update={"total": 0, "fraction": 0.0, "classes_per_client": 0})
    given, new = assign_labels_to_clients(truth, options, config.seed)
    clients = tuple(LabelTruth(*parts) for parts in zip(held, truth, given, new, strict=True))
    return LabelAssignment(clients, validation, server)


def who_has_labels(config: RunConfig) -> str:
    """``"clients"`` have labels for some points, for ``"all"`` points, or only the ``"server"``.

    Clients of methods that learn from all labels always have them.
    """
    if find_method(config.method).data == "fully-labeled":
        return "all"
    return config[LabelPlaceSettings].labels_at


def _of_scenario(clients: Sequence[LabelTruth], config: RunConfig) -> list[LabelTruth]:
    """``clients`` with the labels that the run's method and scenario give them."""
    match who_has_labels(config):
        case "all":
            return [
                replace(client, given=np.where(client.new, UNLABELED, client.labels))
                for client in clients
            ]
        case "server":
            return [_without_labels(client) for client in clients]
        case _:
            return list(clients)


def _without_labels(client: LabelTruth) -> LabelTruth:
    return replace(client, given=np.full_like(client.given, UNLABELED))


def _withhold(clients: Sequence[LabelTruth], without: int) -> list[LabelTruth]:
    """``clients``, with the given labels of number ``without`` removed."""
    if without >= len(clients):
        raise UserError(
            f"Setting labels.without-client = {without}: the run has clients 0 to "
            f"{len(clients) - 1}, and -1 withholds no labels."
        )
    return [
        _without_labels(client) if number == without else client
        for number, client in enumerate(clients)
    ]


def _given_arrays(clients: Sequence[LabelTruth]) -> dict[str, Any]:
    columns: dict[str, list[NDArray[Any]]] = {
        "points": [client.points for client in clients],
        "labels": [client.given for client in clients],
        "new": [client.new for client in clients],
    }
    bounds = bounds_of(columns["points"])
    return {name: np.concatenate(parts) for name, parts in columns.items()} | {"bounds": bounds}


def read_given(directory: Path) -> tuple[LabelTruth, ...]:
    """Read the true labels and the given ones of every client."""
    return _clients(read_arrays(directory / GIVEN), read_arrays(directory / TRUTH)["labels"])


def _clients(given: Mapping[str, NDArray[Any]], truth: Ints) -> tuple[LabelTruth, ...]:
    bounds = given["bounds"]
    parts = [part_of(bounds, client) for client in range(len(bounds) - 1)]
    return tuple(
        LabelTruth(given["points"][part], truth[part], given["labels"][part], given["new"][part])
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


def save_split(file: Path, dealt: LabelAssignment, train_labels: Ints) -> None:
    """Write ``dealt`` for `labels.split` of later runs; ``train_labels``: all of the data set."""
    arrays = _given_arrays(dealt.clients) | {
        "validation": dealt.validation,
        "server": dealt.server,
        "fingerprint": np.array(_fingerprint(train_labels)),
    }

    def write(part: Path) -> None:
        with part.open("wb") as stream:
            np.savez(stream, **arrays)

    replace_file(file, write)


def split_file(config: RunConfig) -> list[Path]:
    """The file that ``labels.split`` names, if it names one.

    Raises
    ------
    UserError
        If there is no such file.
    """
    named = config[LabelSettings].split
    if named and not Path(named).is_file():
        raise _refusal(named, "there is no such file")
    return [Path(named)] if named else []


def load_split(
    file: Path, num_clients: int, train_labels: Ints, class_names: Sequence[str]
) -> LabelAssignment:
    """Read a file of :func:`save_split`, or with ``.txt`` one of the XCLP authors' code.

    True labels come from ``train_labels``.

    Raises
    ------
    UserError
        If it is another file, or one for other data or another number of clients.
    """
    if file.suffix.lower() == ".txt":
        return _load_released(file, num_clients, train_labels, class_names)
    try:
        with np.load(
            file
        ) as archive:  # not `read_arrays`, which caches: another run may overwrite it
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
    held = split.owners >= 0
    _check_number(file, int(split.owners.max(initial=-1)) + 1, num_clients)
    clients = []
    for client in range(num_clients):
        of_client = split.owners == client
        points, shown = split.points[of_client], split.labeled[of_client]
        truth = train_labels[points]
        given = np.where(shown, truth, UNLABELED)
        clients.append(LabelTruth(points, truth, given, np.zeros(len(points), dtype=np.bool_)))
    unnamed = np.setdiff1d(np.flatnonzero(train_labels != UNLABELED), split.points)
    return LabelAssignment(tuple(clients), unnamed, split.points[~held])


def _fingerprint(labels: Ints) -> str:
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def _refusal(file: str | Path, reason: str) -> UserError:
    return UserError(f"Setting labels.split = {str(file)!r}: {reason}.")
