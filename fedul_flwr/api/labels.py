"""Labels that clients give their points, without training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.api.arguments import flat_settings
from fedul_flwr.api.input_data import (
    client_names,
    dataset_of,
    features_apart,
    training_points,
)
from fedul_flwr.api.result import Result, Shown
from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import Scalar, without_exit
from fedul_flwr.config.options import Labeling, takes
from fedul_flwr.data.class_labels import ClassLabels, class_labels
from fedul_flwr.data.csv_files import csv_text
from fedul_flwr.data.run_files.label_files import XCLP, file_name, read_labels
from fedul_flwr.data.run_files.run import SPLIT
from fedul_flwr.data.safe_files import IN_MEMORY, build_by_content
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, Inputs
from fedul_flwr.engine.simulate import label_points
from fedul_flwr.errors import UserError


@dataclass(frozen=True, repr=False)
class Labels(Shown):
    """Labels of all clients' points, given and found.

    Attributes
    ----------
    labels : ``(n,)``, numbers of classes; -1 for points that no label reaches.
    confidence : ``(n,)``, from 0 to 1; 1 for given labels.
    rows : ``(n,)``, the points' numbers in the data: all of ``x``, or those of a data set's
        training points that clients have.
    class_names : K names; label ``k`` is ``class_names[k]``.
    result : the run.
    """

    labels: Ints
    confidence: Floats
    rows: Ints
    class_names: tuple[str, ...]
    result: Result

    def _facts(self) -> dict[str, str]:
        num_labeled = int((self.labels != UNLABELED).sum())
        return {
            "points": str(len(self.labels)),
            "with a label": str(num_labeled),
            "directory": str(self.result.directory),
        }


@without_exit("The run")
@takes(Labeling)
def label(
    data: Any = None,
    *,
    clients: Any = 10,
    model: str | Path | Result | None = None,
    how: Labeling = Labeling(),
    **settings: Any,
) -> Labels:
    """Let clients label their unlabeled points from each other's labels, without training (XCLP).

    Parameters
    ----------
    data : ``(x, y)``, where label -1 or None means unlabeled: all of ``x`` are labeled. Or the path
        or name of a data set, by default ``"digits"``, of which setting ``labels`` says how many
        labels clients know.
    clients : number of clients over which the points are split at random, or for ``(x, y)`` the
        client of each point, ``(n,)``.
    model : a run whose model computes the features that are compared; by default points are
        compared as they are.
    how, settings : as for :func:`fedul_flwr.simulate`.

    Raises
    ------
    UserError
        If a setting or the data cannot be used, or the run fails.
    """
    overrides = flat_settings(settings)
    points: list[Ints] | None = None
    if isinstance(data, tuple | list) and len(data) == 2:
        x = training_points(features_apart(data, clients))
        classes = class_labels(data[1], "y", len(x))
        numbers = classes.numbers
        seed = overrides.get("seed", 0)
        points = clients_points(clients, len(x), int(seed))
        overrides = {**_owners(x, classes, points), **overrides}
        count = len(points)
    elif data is None or isinstance(data, str | Path):
        if data is not None:
            overrides["dataset"] = dataset_of(data)
        if not isinstance(clients, int | np.integer):
            raise UserError(
                "clients must be a number of clients, unless data is (x, y).",
                "argument-not-allowed",
            )
        numbers, count = np.empty(0, dtype=np.int64), int(clients)
    else:
        raise UserError(
            "data must be (x, y), or the path or name of a data set.", "data-not-readable"
        )
    folder = model.directory if isinstance(model, Result) else model
    how = Labeling(**{**dict(how), "clients": count, "model": folder})
    result = Result(label_points(overrides, how))
    rows = np.arange(len(numbers))
    if points is None:
        with np.load(result.directory / SPLIT) as split:
            order = np.argsort(split["points"])
            rows, numbers = split["points"][order], split["labels"][order]
    labels, confidence = numbers.copy(), (numbers != UNLABELED).astype(np.float64)
    for client in range(count):
        folder = result.directory / "clients" / str(client)
        names, propagated = read_labels(folder / file_name(XCLP))
        # Names are a point's number in the data set, or in the folder of its client.
        at = np.array([int(name) for name in names], dtype=np.int64)
        at = np.searchsorted(rows, at) if points is None else points[client][at]
        labels[at], confidence[at] = propagated.labels, propagated.confidence
    return Labels(labels, confidence, rows, result.class_names, result)


def clients_points(clients: Any, num_points: int, seed: int) -> list[Ints]:
    """Rows of each client's points.

    Parameters
    ----------
    clients : a number of clients, over which points are split at random and as evenly as possible;
        or ``(n,)``, the client of each point, any values.
    """
    if isinstance(clients, int | np.integer):
        if not 1 <= clients <= num_points:
            raise UserError(
                f"clients = {clients}: there are {num_points} points, one or more each.",
                "too-few-points",
            )
        order = stream(seed, "clients-of-points").permutation(num_points)
        return [np.sort(part) for part in np.array_split(order, int(clients))]
    numbers = np.unique(client_names(clients, num_points), return_inverse=True)[1]
    return [np.flatnonzero(numbers == client) for client in range(numbers.max() + 1)]


def _owners(x: Inputs, classes: ClassLabels, points: list[Ints]) -> dict[str, Scalar]:
    """Settings of a run whose clients own these points, which are written to disk."""
    names, labels = classes.names, classes.numbers
    if not names:
        raise UserError("y holds no label; one or more points need one.", "labels-missing")
    if any("," in name or name != name.strip() for name in names):
        raise UserError(
            "Names of classes must have no commas, and no spaces around them.", "class-names-wrong"
        )
    kind = "images" if len(x.shape) == 4 else "vectors"
    digits = len(str(len(points)))

    def write(folder: Path) -> None:
        for client, rows in enumerate(points):
            owner_folder = folder / f"{client:0{digits}}"
            owner_folder.mkdir()
            arrays: dict[str, Any] = {kind: x[rows]}
            np.savez(owner_folder / "points.npz", **arrays)
            numbered = [(row, k) for row, k in enumerate(labels[rows]) if k != UNLABELED]
            text = csv_text([("name", "label"), *((row, names[k]) for row, k in numbered)])
            (owner_folder / "labels.csv").write_text(text, encoding="utf-8")

    return {
        "dataset": "none",
        "client-data": str(build_by_content(IN_MEMORY, write)),
        "class-names": ",".join(names),
        "input-shape": "x".join(map(str, x.shape[1:])),
    }
