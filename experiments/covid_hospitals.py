"""Hospitals with folders of their own, made of COVID-19 chest X-rays: data for recipes/covid-*.

    python experiments/covid_hospitals.py DOWNLOADED covid-hospitals

``DOWNLOADED`` is a folder with ``train.parquet`` and ``test.parquet``, columns ``image``, ``label``
(three classes) and ``group_id`` (the patient). The folder that is written has

    server/               a fifth of the training images, with labels, and the test images
    10-hospitals-few/     ten hospitals, five labeled images of each class, the others unlabeled
    10-hospitals-all/     the same hospitals with all labels
    5-hospitals-sets-6/   five hospitals, each with six unlabeled sets and their class priors
    5-hospitals-sets-12/  the same hospitals with twelve sets
    5-hospitals-all/      the same hospitals with all labels

A patient is at one place only: at one hospital, at the server, or among the test images. Classes
are dealt in equal parts. A patient's images can be in several sets of a hospital.

COVID-19 images and the others come from different sources, so a model can tell the source in place
of the disease: figures on these data compare methods, and say nothing about diagnoses.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.data.split import generate_sets

Rows = NDArray[np.int64]
SERVER_PARTS = 5
"""The server has one of so many parts of the training patients."""
FEW = 5
"""Labels of each class at a hospital of FedMatch's."""
SETS = (6, 12)


def deal_patients(labels: Rows, patients: list[str], parts: int, seed: int) -> list[Rows]:
    """Rows of each of ``parts`` places, no patient at two of them.

    Patients of the rarest class come first, in random order, each to the place with the fewest
    images of that class; of several such places, to the one with the fewest images.

    Parameters
    ----------
    labels : ``(n,)``, classes from 0.
    patients : n patients, one for each image.
    """
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, patient in enumerate(patients):
        rows_of[patient].append(row)
    num_classes = int(labels.max()) + 1
    counts = {p: np.bincount(labels[rows], minlength=num_classes) for p, rows in rows_of.items()}
    frequency = np.bincount(labels, minlength=num_classes)
    rarest = {p: min(np.flatnonzero(c), key=lambda k: frequency[k]) for p, c in counts.items()}
    shuffled = np.random.default_rng(seed).permutation(sorted(rows_of))
    order = sorted(shuffled.tolist(), key=lambda p: frequency[rarest[p]])
    held = np.zeros((parts, num_classes), dtype=np.int64)
    places: list[list[int]] = [[] for _ in range(parts)]
    for patient in order:
        place = min(range(parts), key=lambda c: (held[c, rarest[patient]], held[c].sum()))
        held[place] += counts[patient]
        places[place] += rows_of[patient]
    return [np.array(sorted(rows), dtype=np.int64) for rows in places]


def few_of_each(labels: Rows, rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """``count`` of ``rows`` of every class, or all that there are."""
    chosen = [rng.permutation(rows[labels[rows] == k])[:count] for k in range(labels.max() + 1)]
    return np.sort(np.concatenate(chosen))


def write_points(folder: Path, table: pa.Table, names: list[str], rows: Rows, known: Rows) -> None:
    """One hospital's images, and the labels of those rows that are ``known``."""
    folder.mkdir(parents=True)
    pq.write_table(table.select(["image"]).take(rows), folder / "images.parquet")
    labels = table["label"].to_numpy()
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "label"])
        writer.writerows(
            [position, names[labels[row]]] for position, row in enumerate(rows) if row in known
        )


def write_sets(
    folder: Path, table: pa.Table, names: list[str], rows: Rows, hospital: int, num_sets: int
) -> None:
    """One hospital's unlabeled sets with the class shares that they have."""
    folder.mkdir(parents=True)
    labels = table["label"].to_numpy()
    options = UnlabeledSetSettings(num_sets=num_sets, overlap="disjoint")
    made = generate_sets(labels, rows, len(names), hospital, options, seed=0)
    with (folder / "priors.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["set", *names])
        for number, shares in enumerate(made.priors):
            set_name = f"set-{number:02d}.parquet"
            writer.writerow([set_name, *shares])
            inside = made.points[made.sets == number]
            pq.write_table(table.select(["image"]).take(inside), folder / set_name)


def write_hospitals(source: Path, target: Path) -> None:
    """Write all folders of the module's docstring to ``target``, which must not exist."""
    train, test = (pq.read_table(source / f"{split}.parquet") for split in ("train", "test"))
    if shared := set(train["group_id"].to_pylist()) & set(test["group_id"].to_pylist()):
        raise ValueError(f"{len(shared)} patients are among training and test images.")
    about = json.loads(train.schema.metadata[b"huggingface"])
    names = about["info"]["features"]["label"]["names"]
    labels, patients = train["label"].to_numpy(), train["group_id"].to_pylist()
    server, *rest = deal_patients(labels, patients, SERVER_PARTS, seed=0)
    (target / "server").mkdir(parents=True)
    pq.write_table(train.take(server), target / "server" / "train.parquet")
    pq.write_table(test, target / "server" / "test.parquet")
    mine = np.sort(np.concatenate(rest))
    table, labels = train.take(mine), labels[mine]
    patients = table["group_id"].to_pylist()
    rng = np.random.default_rng(0)
    for hospital, rows in enumerate(deal_patients(labels, patients, 10, seed=1)):
        few = few_of_each(labels, rows, FEW, rng)
        name = f"hospital-{hospital}"
        write_points(target / "10-hospitals-few" / name, table, names, rows, few)
        write_points(target / "10-hospitals-all" / name, table, names, rows, rows)
    for hospital, rows in enumerate(deal_patients(labels, patients, 5, seed=1)):
        name = f"hospital-{hospital}"
        write_points(target / "5-hospitals-all" / name, table, names, rows, rows)
        for count in SETS:
            place = target / f"5-hospitals-sets-{count}" / name
            write_sets(place, table, names, rows, hospital, count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Hospitals made of COVID-19 chest X-rays.")
    parser.add_argument("source", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("target", type=Path, help="folder to write; it must not exist")
    given = parser.parse_args()
    if given.target.exists():
        parser.error(f"{given.target} exists already")
    write_hospitals(given.source, given.target)
