"""Tables that ship with scikit-learn: breast cancer (569 x 30) and wine (178 x 13)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.class_labels import ClassLabels
from fedul_flwr.data.digits import stratified_test
from fedul_flwr.data.formats import Split
from fedul_flwr.data.tables import Table

DEMO_TABLES = ("breast-cancer", "wine")
"""Their names."""


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
