"""FedMatch (Jeong et al., ICLR 2021), table 1 (curves: figure 5)."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS

SETTINGS = {
    "method": "fedmatch",
    "dataset": "uoft-cs/cifar10",
    "validation-fraction": 0.06,
    "model": "resnet9",
    "num-rounds": 200,
    "fraction-train": 0.05,
    "local-epochs": 1,
    "optimizer": "sgd",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "client-plateau",
    "augment": "none",
    "weight-decay": 0.0,
    "ssl.recipe": "release",
    "fedmatch.threshold": 0.75,
}
SPLIT = {
    "Batch-IID": {"partition": "iid"},
    "Batch-NonIID": {"partition": "imbalanced"},
}
LABELS = {
    # 5 labels per class at each client, which have 47,000 images in place of the paper's 54,000.
    "labels at clients": {
        "labels.total": 5000,
        "batch-size": 10,
        "learning-rate-patience": 5,
    },
    # 100 labels per class; clients have 46,000 images in place of 54,000.
    "labels at server": {
        "scenario.labels-at": "server",
        "server-fraction": 0.02,
        "batch-size": 100,
        "learning-rate-patience": 20,
        "fedmatch.l1-weight": 1e-5,
        "fedmatch.psi-cutoff": 1e-5,
        "fedmatch.difference-threshold": 1e-5,
    },
}
QUICK = {
    "points-per-client": 200,
    "model": "resnet9-quarter",
    "num-rounds": 40,
    "evaluate-every": 5,
    "fraction-train": 0.25,
    "learning-rate": 0.01,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for (split, of_split), (labels, of_labels) in product(SPLIT.items(), LABELS.items()):
        settings = {**SETTINGS, **of_split, **of_labels}
        if quick:
            settings |= QUICK
            if labels == "labels at clients":
                settings["labels.total"] = 1000
        yield Column(f"{split} {labels}", settings, ROWS, clients=20 if quick else 100)


ACCURACY = {
    "Batch-IID labels at clients": [
        (58.60, 0.42),
        (59.30, 0.31),
        (46.35, 0.29),
        (47.45, 0.21),
        (47.01, 0.43),
        (47.20, 0.12),
        (52.13, 0.34),
    ],
    "Batch-IID labels at server": [
        (52.45, 0.23),
        (49.11, 0.38),
        (24.81, 0.73),
        (19.91, 0.31),
        (11.95, 0.60),
        (25.61, 0.32),
        (44.95, 0.49),
    ],
    "Batch-NonIID labels at clients": [
        (55.15, 0.21),
        (57.75, 0.15),
        (44.35, 0.39),
        (46.31, 0.63),
        (46.20, 0.52),
        (45.55, 0.63),
        (52.25, 0.81),
    ],
    "Batch-NonIID labels at server": [
        (51.50, 0.51),
        (49.31, 0.18),
        (27.61, 0.71),
        (26.01, 0.78),
        (9.45, 0.34),
        (9.21, 0.24),
        (44.17, 0.19),
    ],
}
S2C, C2S = (
    {column: [100.0] * 6 + [of_fedmatch] for column, of_fedmatch in zip(ACCURACY, of, strict=True)}
    for of in ((79.0, 45.0, 85.0, 42.0), (46.0, 22.0, 49.0, 20.0))
)
"""Traffic: all others send every value."""

TABLE = Table(
    title="CIFAR-10, 5 of 100 clients in a round",
    source="FedMatch (Jeong et al., ICLR 2021), table 1 (curves: figure 5)",
    measures=["accuracy", "s2c", "s2c-release", "c2s"],
    note="The test set keeps its 10,000 images, so clients have fewer than the paper's.",
    columns=columns,
    paper={
        "accuracy": figures_of(list(ROWS), ACCURACY),
        "s2c": figures_of(list(ROWS), S2C),
        "c2s": figures_of(list(ROWS), C2S),
    },
)
