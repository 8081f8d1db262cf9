"""The handwritten digits that ship with scikit-learn: 1797 images, 8x8, gray levels 0 to 16."""

from __future__ import annotations

import numpy as np

from fedul_flwr.data.decode import PixelImages
from fedul_flwr.data.formats import Split

_SEED = 1797
_TEST_FRACTION = 0.2


def read_digits() -> tuple[Split, Split]:
    """Return the train (80 %) and test (20 %) split, stratified, the same for every run."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = labels.astype(np.int64)
    generator = np.random.default_rng(_SEED)
    in_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        points = generator.permutation(np.flatnonzero(labels == digit))
        in_test[points[: round(_TEST_FRACTION * len(points))]] = True
    names = tuple(map(str, range(10)))
    train, test = (
        Split(PixelImages(f"digits ({name})", pixels[rows]), labels[rows], class_names=names)
        for name, rows in (("train", ~in_test), ("test", in_test))
    )
    return train, test
