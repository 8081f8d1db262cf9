"""Data that ship with scikit-learn: the handwritten digits, and two tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.class_labels import ClassLabels
from fedul_flwr.data.decode import PixelImages
from fedul_flwr.data.formats import Split
from fedul_flwr.data.tables import Table
from fedul_flwr.data.types import Bools, Ints

DEMO_TABLES = ("breast-cancer", "wine")
"""Names of the tables: breast cancer (569 x 30) and wine (178 x 13)."""
_SEED = 1797
_TEST_FRACTION = 0.2


def stratified_test(labels: Ints) -> Bools:
    """``(n,)``, whether a point is in the test split: 20 % of every class, always the same."""
    generator = np.random.default_rng(_SEED)
    in_test = np.zeros(len(labels), dtype=bool)
    for k in range(int(labels.max()) + 1):
        points = generator.permutation(np.flatnonzero(labels == k))
        in_test[points[: round(_TEST_FRACTION * len(points))]] = True
    return in_test


def read_digits() -> tuple[Split, Split]:
    """1,797 digits of 8 x 8 pixels: train (80 %) and test (20 %) split, the same for every run."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = labels.astype(np.int64)
    in_test = stratified_test(labels)
    names = tuple(map(str, range(10)))
    train, test = (
        Split(PixelImages(f"digits ({name})", pixels[rows]), ClassLabels(labels[rows], names))
        for name, rows in (("train", ~in_test), ("test", in_test))
    )
    return train, test


def read_demo_table(name: str) -> tuple[Split, Split]:
    """Return the train (80 %) and test (20 %) split, stratified, the same for every run."""
    from sklearn import datasets

    load = datasets.load_breast_cancer if name == "breast-cancer" else datasets.load_wine
    found = load()
    labels = found.target.astype(np.int64)
    in_test = stratified_test(labels)
    headers, classes = [str(n) for n in found.feature_names], tuple(map(str, found.target_names))
    train, test = (
        Split(
            _table(f"{name} ({split})", headers, found.data[rows]),
            ClassLabels(labels[rows], classes),
        )
        for split, rows in (("train", ~in_test), ("test", in_test))
    )
    return train, test


def _table(where: str, headers: list[str], rows: NDArray[np.float64]) -> Table:
    import pyarrow as pa  # type: ignore[import-untyped]

    columns = zip(headers, rows.T, strict=True)
    return Table(where, cells={header: pa.chunked_array([column]) for header, column in columns})
