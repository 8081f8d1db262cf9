"""An extractor of one's own for a golden run."""

import numpy as np
from numpy.typing import NDArray


def rows(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Sums of an image's rows and columns."""
    pixels = images[..., 0].astype(np.float32) / 255
    return np.concatenate([pixels.sum(axis=1), pixels.sum(axis=2)], axis=1)
