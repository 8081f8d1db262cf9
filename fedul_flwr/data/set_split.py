"""A simulated federation of unlabeled sets on disk, for methods without labels.

Clients get the paths of ``sets.npz`` and of the images; clients of supervised methods also that of
``labels.npz``. ``truth.npz`` is for the simulation only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.fedul import UnlabeledSetSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.cache import open_array
from fedul_flwr.data.federated_split import (
    ClientTruth,
    assign_points,
    bounds_of,
    part_of,
    read_arrays,
)
from fedul_flwr.data.prior_uncertainty import Dirichlet
from fedul_flwr.data.set_generator import generate_sets
from fedul_flwr.data.types import UNLABELED, Floats, Ints, LabeledPoints, Source, UnlabeledSets
from fedul_flwr.errors import UserError

SETS, LABELS, TRUTH = "sets.npz", "labels.npz", "truth.npz"


@dataclass(frozen=True)
class SetTruth(ClientTruth):
    """True labels of a client with unlabeled sets: points set by set, twice if in two sets."""

    sets: Ints
    priors: Floats
    true_priors: Floats


def write_sets(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` into clients' sets, and write the files to ``folder``.

    Raises
    ------
    UserError
        If some training points have no label, or the settings cannot be met with these data.
    """
    labels = np.asarray(source.train.labels)
    if (labels == UNLABELED).any():
        raise UserError(
            "A simulation makes unlabeled sets of known class priors, so it needs the label of "
            f"every training point; {int((labels == UNLABELED).sum())} have none."
        )
    held, validation, server = assign_points(source, num_clients, config)
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
        for client, points in enumerate(held)
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
        points=np.concatenate(held),
        labels=labels[np.concatenate(held)],
        point_bounds=bounds_of(held),
    )
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([labels[client.points] for client in clients]),
        true_priors=np.concatenate([client.true_priors for client in clients]),
        validation=validation,
        server=server,
    )


def read_sets(directory: Path) -> tuple[SetTruth, ...]:
    """Read the true labels of every client."""
    sets, truth = read_arrays(directory / SETS), read_arrays(directory / TRUTH)
    clients = []
    for client in range(len(sets["point_bounds"]) - 1):
        of_points, of_sets = _bounds(sets, client)
        clients.append(
            SetTruth(
                points=sets["points"][of_points],
                labels=truth["labels"][of_points],
                sets=sets["sets"][of_points],
                priors=sets["priors"][of_sets],
                true_priors=truth["true_priors"][of_sets],
            )
        )
    return tuple(clients)


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
    held = part_of(arrays["point_bounds"], client)
    inputs = open_array(Path(files["inputs"]))
    return LabeledPoints(inputs, arrays["points"][held], arrays["labels"][held])


def _bounds(arrays: dict[str, NDArray[Any]], client: int) -> tuple[slice, slice]:
    return part_of(arrays["point_bounds"], client), part_of(arrays["set_bounds"], client)
