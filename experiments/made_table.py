"""A table of numbers made by scikit-learn's make_classification: data for recipes/tables.

    python experiments/made_table.py made-table

writes ``train.npz`` (50,000 points) and ``test.npz`` (10,000) with 40 columns, of which 30 tell
about the class, and 20 classes. Columns have means and scales of their own, as those of real tables
have.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

CLASSES, COLUMNS, INFORMATIVE = 20, 40, 30
TRAIN, TEST = 50_000, 10_000


def write_table(folder: Path, train: int = TRAIN, test: int = TEST, seed: int = 0) -> None:
    """Write both splits to ``folder``, which may not exist yet."""
    vectors, labels = make_classification(
        train + test,
        COLUMNS,
        n_informative=INFORMATIVE,
        n_redundant=0,
        n_classes=CLASSES,
        n_clusters_per_class=1,
        class_sep=2.0,
        random_state=seed,
    )
    rng = np.random.default_rng(seed)
    means, scales = rng.normal(0, 100, COLUMNS), 10.0 ** rng.uniform(-2, 3, COLUMNS)
    vectors = (vectors * scales + means).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", slice(train)), ("test", slice(train, None))):
        np.savez(folder / f"{name}.npz", vectors=vectors[rows], labels=labels[rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    write_table(parser.parse_args().folder)
