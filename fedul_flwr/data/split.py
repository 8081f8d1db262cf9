"""A simulated federation on disk: the clients' data, and the true labels for the simulation.

The server of a simulation builds it once; clients get the paths from :func:`client_files`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.config.base import Scalar, Settings
from fedul_flwr.config.method_settings import LabelSettings, UnlabeledSetSettings
from fedul_flwr.config.methods import PARTLY_LABELED, DataKind, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.data.cache import build_once, cache_directory, cache_key
from fedul_flwr.data.label_split import (
    ASSIGNED,
    label_scenario,
    read_assigned_labels,
    split_file,
    write_once,
)
from fedul_flwr.data.partition import ClientTruth
from fedul_flwr.data.safe_files import read_arrays
from fedul_flwr.data.set_split import LABELS, SETS, TRUTH, read_sets, write_sets
from fedul_flwr.data.sources import TRAIN_INPUTS, read_source
from fedul_flwr.data.types import Ints

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
    directory : its folder.
    validation, server : rows of the training images that the server keeps, with labels, to select
        the best round and to train on.
    clients : one entry per client, with all its points and their true labels; a
        :class:`~fedul_flwr.data.set_split.SetTruth`, or a
        :class:`~fedul_flwr.data.label_split.LabelTruth` of a method on partly labeled data.
    """

    directory: Path
    validation: Ints
    server: Ints
    clients: tuple[ClientTruth, ...]


def build_split(source_directory: Path, num_clients: int, config: RunConfig) -> Split:
    """Build the federation that ``config`` describes, or open it if it exists.

    It depends only on the data, the number of clients, the seed and the settings of data, so that
    all methods in a comparison on the same kind of data share it.
    """
    described = [FORMAT_VERSION, str(source_directory), num_clients, split_settings(config)]
    key = cache_key(described, split_file(config[LabelSettings].split))
    directory = cache_directory() / "splits" / key

    def build(folder: Path) -> None:
        _write(folder, source_directory, num_clients, config)

    return read_split(build_once(directory, build))


def split_settings(config: RunConfig) -> dict[str, Scalar]:
    """The settings that determine the clients' points and their form, for a given data set.

    For a method without sets, settings of sets have their defaults.
    """
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
