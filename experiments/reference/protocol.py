"""What the tables of this folder share: data, splits, rounds and clients.

Full size is the protocol of FedMatch, SemiFL and their successors, 10 of 100 clients in a round.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

SETTINGS = {
    "validation-fraction": 0.02,
    "fraction-train": 0.1,
    "num-rounds": 800,
    "evaluate-every": 10,
    "local-epochs": 5,
    "optimizer": "sgd",
    "learning-rate": 0.03,
    "momentum": 0.9,
    "weight-decay": 5e-4,
    "learning-rate-schedule": "cosine",
}
FEATURES, XRAYS = "CIFAR-10 features", "chest X-rays"
DATA = {
    "MNIST": {"dataset": "ylecun/mnist", "model": "wrn28-2", "augment": "affine"},
    "Fashion-MNIST": {
        "dataset": "zalando-datasets/fashion_mnist",
        "model": "wrn28-2",
        "augment": "affine",
    },
    FEATURES: {
        "dataset": "uoft-cs/cifar10",
        "features": "efficientnet-lite0@128",
        "model": "mlp",
        "augment": "noise",
    },
    "CIFAR-10": {"dataset": "uoft-cs/cifar10", "model": "wrn28-2", "augment": "translate-flip"},
    # 886 images for training, of three classes: five clients at both sizes.
    XRAYS: {
        "dataset": "./covid-xrays",
        "image-size": 64,
        "validation-fraction": 0.1,
        "fraction-train": 1.0,
        "model": "resnet9",
        "augment": "affine",
        "num-rounds": 100,
    },
}
# Closed forms at their defaults: of images they have fitted filters, and views of color images.
CLOSED_FORM = {
    data: {
        "model": "whitened-filters",
        "augment": "flip" if data == "CIFAR-10" else "none",
    }
    for data in DATA
} | {FEATURES: {"model": "linear"}}
SPLITS = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet.alpha": 0.1},
    "two classes": {"partition": "pathological", "pathological.classes-per-client": 2},
}
QUICK = {
    "points-per-client": 500,
    "fraction-train": 0.5,
    "num-rounds": 30,
    "evaluate-every": 5,
    "local-epochs": 1,
    "model": "cnn2",
}


def cells(quick: bool) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Data, split, settings and number of clients of each column."""
    for data, split in product(DATA, SPLITS):
        settings: dict[str, Any] = {**SETTINGS, **DATA[data], **SPLITS[split]}
        if quick:
            settings |= QUICK
            if data == FEATURES:
                settings["model"] = "mlp"
            if data == XRAYS:
                settings |= {"points-per-client": 0, "fraction-train": 1.0, "image-size": 32}
            if split == "Dirichlet 0.1":
                settings["dirichlet.min-points"] = 30 if data == XRAYS else 500
        yield data, split, settings, 5 if data == XRAYS else 10 if quick else 100
