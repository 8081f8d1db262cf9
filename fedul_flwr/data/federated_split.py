"""Assignment of points to the clients and the server of a simulation, for all kinds of data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.partition import partition_points
from fedul_flwr.data.seeds import derived_seed
from fedul_flwr.data.types import UNLABELED, Ints, Source
from fedul_flwr.errors import UserError


@dataclass(frozen=True)
class ClientTruth:
    """Facts about a client that only the simulation knows: for reports, never for training.

    Attributes
    ----------
    points : the client's rows of the training images, in its order.
    labels : their true labels, ``-1`` if the data set has none.
    """

    points: Ints
    labels: Ints


class Aside(NamedTuple):
    """Sorted rows of the training data: those for all clients, and those that the server keeps."""

    training: Ints
    validation: Ints
    server: Ints


class AssignedPoints(NamedTuple):
    """Sorted rows of the training data: each client's, and those that the server keeps."""

    clients: list[Ints]
    validation: Ints
    server: Ints


def assign_points(source: Source, num_clients: int, config: RunConfig) -> AssignedPoints:
    """Assign the training points to clients and server, by the shared settings of data."""
    labels = np.asarray(source.train.labels)
    training, validation, server = set_aside(labels, config)
    parts = partition_points(
        labels[training],
        {name: column[training] for name, column in source.train.columns.items()},
        source.num_classes,
        num_clients,
        config,
    )
    return AssignedPoints([np.sort(training[part]) for part in parts], validation, server)


def set_aside(labels: Ints, config: RunConfig) -> Aside:
    """Set ``validation-fraction`` and ``server-fraction`` of all rows with a label aside.

    Stratified by label. Rows without one (``-1``) stay with the clients.
    """
    everything = np.arange(len(labels), dtype=np.int64)
    training, validation = _take(everything, labels, config, "validation")
    training, server = _take(training, labels, config, "server")
    return Aside(training, validation, server)


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
