"""A simulated federation on disk: who holds which points, in which sets, with which priors.

The server of a simulation builds it once. Clients are told of two files, ``sets.npz`` and the
images; clients of supervised methods also of ``labels.npz``. What the simulation alone knows is in
``truth.npz``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config import RunConfig
from fedul_flwr.data.cache import build_once, cache_directory, cache_key, open_array
from fedul_flwr.data.partition import partition_points
from fedul_flwr.data.seeds import derived_seed
from fedul_flwr.data.set_generator import generate_sets
from fedul_flwr.data.sources import TRAIN_IMAGES, read_source
from fedul_flwr.data.types import UNLABELED, Floats, Ints, LabeledPoints, Source, UnlabeledSets
from fedul_flwr.errors import UserError
from fedul_flwr.settings.base import Scalar
from fedul_flwr.settings.fedul import UnlabeledSetSettings

FORMAT_VERSION = 4
SHAPING = ("partition", "points-per-client", "validation-fraction", "server-fraction", "seed")
"""Shared settings that decide who holds what."""


@dataclass(frozen=True)
class ClientTruth:
    """What only the simulation knows of a client: for reports and checks, never for training."""

    points: Ints
    sets: Ints
    labels: Ints
    priors: Floats
    true_priors: Floats


@dataclass(frozen=True)
class Split:
    """A simulated federation.

    Attributes
    ----------
    directory : where it lies.
    validation, server : rows of the training images set aside, with labels, at the server: to
        choose the best round, and to train on.
    clients : one entry per client.
    """

    directory: Path
    validation: Ints
    server: Ints
    clients: tuple[ClientTruth, ...]


class Aside(NamedTuple):
    """Rows of the training data, sorted: the clients', and what the server keeps of it."""

    training: Ints
    validation: Ints
    server: Ints


def build_split(source_directory: Path, num_clients: int, config: RunConfig) -> Split:
    """Build the federation that ``config`` describes, or open it where it exists already.

    It depends on the data, the number of clients, the seed and the settings of data alone, so that
    all methods of a comparison share it.
    """
    sets = config.section("fedul", UnlabeledSetSettings)
    described = [FORMAT_VERSION, str(source_directory), num_clients, split_settings(config)]
    directory = cache_directory() / "splits" / cache_key(described)

    def build(folder: Path) -> None:
        _write(folder, read_source(source_directory), num_clients, config, sets)

    return read_split(build_once(directory, build))


def split_settings(config: RunConfig) -> dict[str, Scalar]:
    """The settings, beside the data, that decide who holds which points in which sets.

    Of a method that has no sets they are those that its points are dealt by: the defaults.
    """
    chosen = {
        key: value
        for key, value in config.to_flat().items()
        if key in SHAPING or key.startswith(f"{config.partition}.")
    }
    sets = config.section("fedul", UnlabeledSetSettings).to_flat()
    return chosen | {f"fedul.{name}": sets[name] for name in UnlabeledSetSettings.names()}


def _write(
    folder: Path, source: Source, num_clients: int, config: RunConfig, sets: UnlabeledSetSettings
) -> None:
    labels = np.asarray(source.train.labels)
    if (labels == UNLABELED).any():
        raise UserError(
            "A simulation makes unlabeled sets of known class priors, so it needs the label of "
            f"every training point; {int((labels == UNLABELED).sum())} have none."
        )
    training, validation, server = set_aside(labels, config)
    parts = partition_points(
        labels[training],
        {name: column[training] for name, column in source.train.columns.items()},
        source.num_classes,
        num_clients,
        config,
    )
    clients = [
        generate_sets(
            labels,
            training[part],
            source.num_classes,
            client,
            sets,
            config.seed,
            num_clients=num_clients,
        )
        for client, part in enumerate(parts)
    ]
    np.savez(
        folder / "sets.npz",
        points=np.concatenate([client.points for client in clients]),
        sets=np.concatenate([client.sets for client in clients]),
        priors=np.concatenate([client.priors for client in clients]),
        point_bounds=np.cumsum([0] + [len(client.points) for client in clients]),
        set_bounds=np.cumsum([0] + [len(client.priors) for client in clients]),
    )
    # All points of a client: sets that share points need not have all of them in some set.
    held = [np.sort(training[part]) for part in parts]
    np.savez(
        folder / "labels.npz",
        points=np.concatenate(held),
        labels=labels[np.concatenate(held)],
        point_bounds=np.cumsum([0] + [len(points) for points in held]),
    )
    np.savez(
        folder / "truth.npz",
        labels=np.concatenate([labels[client.points] for client in clients]),
        true_priors=np.concatenate([client.true_priors for client in clients]),
        validation=validation,
        server=server,
    )


def set_aside(labels: Ints, config: RunConfig) -> Aside:
    """Set ``validation-fraction`` and ``server-fraction`` of all rows aside, stratified."""
    everything = np.arange(len(labels), dtype=np.int64)
    training, validation = _take(everything, labels, config, "validation")
    training, server = _take(training, labels, config, "server")
    return Aside(training, validation, server)


def _take(rows: Ints, labels: Ints, config: RunConfig, what: str) -> tuple[Ints, Ints]:
    """Take the fraction of all labels that belongs to ``what`` out of ``rows``."""
    key = f"{what}-fraction"
    fraction = float(config.to_flat()[key])
    if fraction == 0:
        return rows, rows[:0]
    size = math.ceil(fraction * len(labels))
    try:
        return without_sample(rows, labels[rows], size, derived_seed(config.seed, what))
    except ValueError as err:
        raise UserError(f"Setting {key} = {fraction}: {err}") from err


def without_sample(rows: Ints, labels: Ints, size: int, seed: int) -> tuple[Ints, Ints]:
    """Split ``rows`` into the rest and a sample of ``size``, stratified by ``labels``."""
    from sklearn.model_selection import train_test_split

    rest, sample = train_test_split(rows, test_size=size, random_state=seed, stratify=labels)
    return np.sort(rest), np.sort(sample)


def read_split(directory: Path) -> Split:
    """Open a federation whole, as its server does."""
    sets, truth = _arrays(directory / "sets.npz"), _arrays(directory / "truth.npz")
    clients = []
    for client in range(len(sets["point_bounds"]) - 1):
        of_points, of_sets = _bounds(sets, client)
        clients.append(
            ClientTruth(
                points=sets["points"][of_points],
                sets=sets["sets"][of_points],
                labels=truth["labels"][of_points],
                priors=sets["priors"][of_sets],
                true_priors=truth["true_priors"][of_sets],
            )
        )
    return Split(directory, truth["validation"], truth["server"], tuple(clients))


def client_files(
    source_directory: Path, split_directory: Path, *, labels: bool = False
) -> dict[str, str]:
    """The files that clients of a simulation are told of, ``labels`` among them if asked for."""
    files = {"images": source_directory / TRAIN_IMAGES, "sets": split_directory / "sets.npz"}
    if labels:
        files["labels"] = split_directory / "labels.npz"
    return {name: str(path) for name, path in files.items()}


def open_unlabeled_sets(files: Mapping[str, str], client: int) -> UnlabeledSets:
    """One client's unlabeled sets, from the ``images`` and ``sets`` of :func:`client_files`."""
    arrays = _arrays(Path(files["sets"]))
    of_points, of_sets = _bounds(arrays, client)
    return UnlabeledSets(
        images=open_array(Path(files["images"])),
        points=arrays["points"][of_points],
        sets=arrays["sets"][of_points],
        priors=arrays["priors"][of_sets],
    )


def open_labeled_points(files: Mapping[str, str], client: int) -> LabeledPoints:
    """All points of the same client, in a set or not, with labels: for supervised methods."""
    arrays = _arrays(Path(files["labels"]))
    held = _part(arrays["point_bounds"], client)
    images = open_array(Path(files["images"]))
    return LabeledPoints(images, arrays["points"][held], arrays["labels"][held])


def _bounds(arrays: dict[str, NDArray[Any]], client: int) -> tuple[slice, slice]:
    return _part(arrays["point_bounds"], client), _part(arrays["set_bounds"], client)


def _part(bounds: NDArray[Any], client: int) -> slice:
    if not 0 <= client < len(bounds) - 1:
        raise UserError(f"Client {client} is not in this federation of {len(bounds) - 1}.")
    return slice(bounds[client], bounds[client + 1])


# A process of a simulation serves many clients of one federation: read each file once.
@lru_cache(maxsize=4)
def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    with np.load(file) as archive:
        return {name: archive[name] for name in archive.files}
