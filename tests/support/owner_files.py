"""Folders of data owners, small and made up."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ("sound", "ill")
NO_DATA: dict[str, Any] = {
    **{"dataset": "none", "class-names": ",".join(CLASSES), "input-shape": "8x8x1"},
    "model": "mlp",
}
"""Settings of a run whose server has no data."""
PRIORS = "set,sound,ill\njanuary,0.7,0.3\nfebruary,0.2,0.8\n"
LABELS = "name,label\n0,sound\n3,ill\n"


def images(count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8), dtype=np.uint8)


def write_sets(folder: Path) -> Path:
    """Two unlabeled sets of twenty and ten points."""
    folder.mkdir(parents=True)
    for seed, (name, count) in enumerate((("january", 20), ("february", 10))):
        np.savez(folder / f"{name}.npz", images=images(count, seed))
    (folder / "priors.csv").write_text(PRIORS)
    return folder


def write_points(folder: Path, labels: str = LABELS) -> Path:
    """Twelve points, of which ``labels`` names two."""
    folder.mkdir(parents=True)
    np.savez(folder / "scans.npz", images=images(12))
    (folder / "labels.csv").write_text(labels)
    return folder


def write_folders(folder: Path) -> Path:
    """Two points of each class in folders, and three without a label."""
    for seed, name in enumerate((*CLASSES, "unlabeled")):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(images(3 if name == "unlabeled" else 2, seed)):
            Image.fromarray(image).save(folder / name / f"{number}.png")
    return folder
