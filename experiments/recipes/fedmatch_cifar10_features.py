"""Settings of ours beside FedMatch's figure 6 (a) and (b)."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

from ..fedmatch.ablations import ROWS

SETTINGS = {
    "method": "fedmatch",
    "fedmatch.threshold": 0.85,
    "dataset": "uoft-cs/cifar10",
    "features": "efficientnet-lite0@128",
    "partition": "iid",
    "model": "mlp",
    "model-layers": 1,
    "validation-fraction": 0.2,
    "num-rounds": 200,
    "evaluate-every": 20,
    "selection": "last",
    "fraction-train": 0.05,
    "local-epochs": 1,
    "batch-size": 10,
    "optimizer": "sgd",
    "learning-rate": 0.01,
    "learning-rate-schedule": "cosine",
    "augment": "none",
}
LABELS = {
    "1000 labels": {"labels.total": 1000, "local-epochs": 4},
    "5000 labels": {"labels.total": 5000},
}
QUICK = {
    "points-per-client": 200,
    "num-rounds": 40,
    "fraction-train": 0.25,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
        yield Column(labels, settings, ROWS, clients=20 if quick else 100)


SEARCH = Search(
    trials=4,
    space={
        "step": [
            {"learning-rate": 0.1},
            {"learning-rate": 0.03},
            {"learning-rate": 0.01},
            {"learning-rate": 0.003},
        ],
    },
)

TABLE = Table(
    title="FedMatch without each of its parts, on CIFAR-10 by pretrained features",
    source="Settings of ours beside FedMatch's figure 6 (a) and (b)",
    measures=["test-error"],
    note=(
        "A network with one hidden layer is trained on features of EfficientNet-Lite0 with "
        "ImageNet weights, which stay as they are; the paper trains a ResNet-9 on the images. "
        "Strong views are noise and feature dropout. The paper has curves and prints no number."
    ),
    columns=columns,
    search=SEARCH,
)
