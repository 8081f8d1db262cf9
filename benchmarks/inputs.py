"""Data sets for benchmarks: real ones if they are available, else random images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.config.base import Scalar
from fedul_flwr.data.sources import load_source
from fedul_flwr.experiments.table import read_table

_CHECKOUT = Path(__file__).parents[1]
EXPERIMENTS = _CHECKOUT / "experiments"
MADE = _CHECKOUT / "runs" / "bench" / "data"
"""Folder for generated data sets."""


def data_folder(name: str) -> Path | None:
    """Folder of a data set: in ``$FEDUL_DATA`` or next to the checkout."""
    folder = Path(os.environ.get("FEDUL_DATA", _CHECKOUT.parent / "shared" / "data")) / name
    return folder if (folder / "train.parquet").exists() else None


def write_npz(folder: Path, train: tuple[Bytes, Ints], test: tuple[Bytes, Ints]) -> Path:
    """Write a data set in a format of the app; an existing one is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "test.npz").exists():
        return folder
    for name, (images, labels) in {"train": train, "test": test}.items():
        np.savez(folder / f"{name}.npz", images=images, labels=labels)
    return folder


def some_of(folder: Path, train: int, test: int) -> Path:
    """The first images of a data set, as one of their own."""
    source = load_source(str(folder))
    parts = [
        (np.asarray(part.inputs[:size]), np.asarray(part.labels[:size]))
        for part, size in ((source.train, train), (source.test, test))
    ]
    return write_npz(MADE / f"{folder.name}-{train}-{test}", parts[0], parts[1])


def mnist_like() -> tuple[Path, str]:
    """MNIST, or random images of the same number and size; and its name."""
    return _or_random("mnist", "MNIST", (28, 28))


def cifar_like() -> tuple[Path, str]:
    """CIFAR-10, or random images of the same number and size; and its name."""
    return _or_random("cifar10", "CIFAR-10", (32, 32, 3))


def _or_random(name: str, title: str, shape: tuple[int, ...]) -> tuple[Path, str]:
    if folder := data_folder(name):
        return folder, title
    rng = np.random.default_rng(0)
    count = 60_000
    images = rng.integers(0, 256, (count + 10_000, *shape), dtype=np.uint8)
    labels = rng.integers(0, 10, len(images))
    parts = (images[:count], labels[:count]), (images[count:], labels[count:])
    size = " x ".join(map(str, shape))
    return write_npz(MADE / f"random-{name}", *parts), f"random {size} images"


def experiment(table: str, column: str) -> dict[str, Scalar]:
    """Settings of a column of a paper's table, at full size, with flat names."""
    return dict(read_table(EXPERIMENTS, table).column(column).settings)


def shifted_digits(num_points: int) -> Path:
    """scikit-learn's digits, copies moved by up to one pixel: ``num_points`` to train on."""
    digits = load_source("digits")
    train, test = digits.train, digits.test
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(train.inputs), num_points)
    shifts = rng.integers(-1, 2, (num_points, 2))
    images = np.stack(
        [
            np.roll(train.inputs[row], shift, axis=(0, 1))
            for row, shift in zip(rows, shifts, strict=True)
        ]
    )
    return write_npz(
        MADE / f"digits{num_points}", (images, train.labels[rows]), (test.inputs, test.labels)
    )


DIGITS = 'dataset="none" class-names="0,1,2,3,4,5,6,7,8,9" input-shape="8x8x1"'
"""Settings for :func:`write_wards`."""


def write_wards(place: Path, count: int, num_sets: int = 10, size: int = 50) -> list[Path]:
    """Folders of data owners with unlabeled sets of digits and their class priors."""
    rng = np.random.default_rng(0)
    images, labels = (digits := load_source("digits").train).inputs, digits.labels
    folders = [place / f"ward-{owner}" for owner in range(count)]
    for folder in folders:
        folder.mkdir(parents=True)
        rows = ["set," + ",".join(map(str, range(10)))]
        for number in range(num_sets):
            weights = rng.uniform(0.1, 1, 10) * np.where(np.arange(10) == number % 10, 10, 1)
            chances = (weights / np.bincount(labels))[labels]
            points = rng.choice(len(images), size, p=chances / chances.sum())
            np.savez(folder / f"set-{number}.npz", images=images[points])
            shares = np.bincount(labels[points], minlength=10) / size
            rows.append(",".join([f"set-{number}", *map(str, shares)]))
        (folder / "priors.csv").write_text("\n".join(rows) + "\n")
    return folders
