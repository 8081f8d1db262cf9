"""Folders of data owners from which a class can be learned: a brighter row shows it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAMES = ("first", "second", "third")
SHAPE = "8x8x1"
NO_DATA = {
    **{"dataset": "none", "class-names": ",".join(NAMES), "input-shape": SHAPE},
    **{"agreement": "off"},
}
"""Settings of a server that has no data; without a sum of counts before the others."""


def make_images(classes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """``(n, 8, 8)`` images of ``classes`` ``(n,)``."""
    images = rng.integers(0, 120, (len(classes), 8, 8))
    images[np.arange(len(classes)), 1 + 2 * classes] += 80
    return images.astype(np.uint8)


def write_sets(
    folder: Path, seed: int, num_sets: int = 4, size: int = 20, *, exact: bool = False
) -> None:
    """Unlabeled sets and ``priors.csv``, with as many digits as priors of real counts have.

    With ``exact`` they are the shares of the set's own points.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    rows = [",".join(["set", *NAMES])]
    for number in range(num_sets):
        drawn = rng.uniform(0.1, 1, len(NAMES)) + 3 * (np.arange(len(NAMES)) == number % len(NAMES))
        priors = drawn / drawn.sum()
        classes = rng.choice(len(NAMES), size, p=priors)
        if exact:
            priors = np.bincount(classes, minlength=len(NAMES)) / size
        np.savez(folder / f"month-{number}.npz", images=make_images(classes, rng))
        rows.append(",".join([f"month-{number}", *map(repr, priors.tolist())]))
    (folder / "priors.csv").write_text("\n".join(rows) + "\n")


def write_labeled(folder: Path, seed: int, points: int = 30, known: int = 6) -> None:
    """Images in one file, and ``labels.csv`` for the first ``known`` of them."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    classes = rng.integers(0, len(NAMES), points)
    np.savez(folder / "images.npz", images=make_images(classes, rng))
    rows = [f"{point},{NAMES[classes[point]]}\n" for point in range(known)]
    (folder / "labels.csv").write_text("".join(["name,label\n", *rows]))


def images_in(folder: Path) -> NDArray[np.uint8]:
    """``(n, 8, 8)``, all images of an owner."""
    return np.concatenate([np.load(file)["images"] for file in sorted(folder.glob("*.npz"))])


def secrets_of(folder: Path) -> dict[str, list[bytes]]:
    """What an owner must keep to itself, in forms that it could travel in."""
    rows = images_in(folder).reshape(-1, 8)  # eight pixels in a row are no coincidence
    scaled = rows.astype(np.float32) / 255
    secrets = {
        "pixels": [row.tobytes() for row in rows],
        "scaled pixels": [row.tobytes() for row in (*scaled, *((scaled - 0.5) / 0.5))],
        "places": [str(folder).encode()],
    }
    if (folder / "priors.csv").exists():
        texts = [row[1:] for row in _rows(folder / "priors.csv")]
        priors = np.array(texts, dtype=np.float64)
        secrets |= {
            "priors": [prior.tobytes() for prior in priors.ravel()],
            "priors in single precision": [row.tobytes() for row in priors.astype(np.float32)],
            "priors as text": [text[:8].encode() for row in texts for text in row],
            "names of sets": [b"month-"],
        }
    if (folder / "labels.csv").exists():
        labels = np.array([NAMES.index(label) for _, label in _rows(folder / "labels.csv")])
        one_hot = np.eye(len(NAMES))[labels]
        kinds = (np.uint8, np.int32, np.int64, np.float32, np.float64)
        secrets["labels"] = [
            array.astype(k).tobytes() for array in (labels, one_hot) for k in kinds
        ]
    return secrets


def found_in(sent: bytes, folder: Path) -> set[str]:
    """Kinds of secrets of an owner that are in ``sent``."""
    kinds = secrets_of(folder).items()
    return {kind for kind, patterns in kinds if any(pattern in sent for pattern in patterns)}


def _rows(file: Path) -> list[list[str]]:
    return [line.split(",") for line in file.read_text().splitlines()[1:]]
