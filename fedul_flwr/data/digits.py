"""The handwritten digits that ship with scikit-learn: 1797 images, 8x8, gray levels 0 to 16."""

from __future__ import annotations

import numpy as np

from fedul_flwr.data.class_labels import ClassLabels
from fedul_flwr.data.decode import PixelImages
from fedul_flwr.data.formats import Split
from fedul_flwr.data.types import Bools, Ints

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
    """Return the train (80 %) and test (20 %) split, stratified, the same for every run."""
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
