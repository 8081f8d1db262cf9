"""Data sets that are known to work by their name."""

from __future__ import annotations

from typing import NamedTuple


class KnownDataset(NamedTuple):
    """A data set that ``dataset`` takes by name.

    Attributes
    ----------
    name : value of ``dataset``.
    shape : shape of one point in words.
    classes : number of classes K.
    train, test : number of points of the splits.
    needs : packages or downloads that it needs.
    hint : settings that go with it, or empty.
    """

    name: str
    shape: str
    classes: int
    train: int
    test: int
    needs: str
    hint: str = ""


_HERE = "nothing: it comes with scikit-learn"
_HUB = "network on first use: a download from the Hugging Face hub, about {} MB"

KNOWN_DATASETS = (
    KnownDataset("digits", "images 8 x 8, gray", 10, 1438, 359, _HERE),
    KnownDataset("breast-cancer", "vectors of 30 numbers", 2, 456, 113, _HERE),
    KnownDataset("wine", "vectors of 13 numbers", 3, 142, 36, _HERE),
    KnownDataset("ylecun/mnist", "images 28 x 28, gray", 10, 60_000, 10_000, _HUB.format(18)),
    KnownDataset(
        "zalando-datasets/fashion_mnist",
        "images 28 x 28, gray",
        10,
        60_000,
        10_000,
        _HUB.format(36),
    ),
    KnownDataset(
        "uoft-cs/cifar10",
        "images 32 x 32, color",
        10,
        50_000,
        10_000,
        _HUB.format(144),
        "augment=translate-flip",
    ),
)
"""Data sets by what they need, then by size. Tests read each one."""
