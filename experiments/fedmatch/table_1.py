"""FedMatch (Jeong et al., ICLR 2021), table 1 (curves: figure 5)."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table, by_row, figures_of

from .methods import ROWS
from .protocol import AT_CLIENTS, AT_SERVER, CIFAR, of_resnet9

SPLIT = {
    "Batch-IID": {"partition": "iid"},
    "Batch-NonIID": {"partition": "imbalanced"},
}
LABELS = {
    # 5 labels per class at each client, which have 47,000 images in place of the paper's 54,000.
    "labels at clients": {
        **AT_CLIENTS,
        "labels.total": 5000,
    },
    # 100 labels per class; clients have 46,000 images in place of 54,000.
    "labels at server": {
        **AT_SERVER,
        "server-fraction": 0.02,
    },
}
# Ours: what the labels are worth without unlabeled points, at the clients or at the server.
ROWS_AND_ALONE = {**ROWS, "labels alone": {"method": "given-labels"}}
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
        settings = {**CIFAR, **of_split, **of_labels}
        if quick:
            settings |= QUICK
            if labels == "labels at clients":
                settings["labels.total"] = 1000
        rows = of_resnet9(ROWS_AND_ALONE, quick)
        yield Column(f"{split} {labels}", settings, rows, clients=20 if quick else 100)


COLUMNS = [f"{split} {labels}" for split, labels in product(SPLIT, LABELS)]
ACCURACY = {
    "FedAvg-SL": [(58.60, 0.42), (52.45, 0.23), (55.15, 0.21), (51.50, 0.51)],
    "FedProx-SL": [(59.30, 0.31), (49.11, 0.38), (57.75, 0.15), (49.31, 0.18)],
    "FedAvg-UDA": [(46.35, 0.29), (24.81, 0.73), (44.35, 0.39), (27.61, 0.71)],
    "FedProx-UDA": [(47.45, 0.21), (19.91, 0.31), (46.31, 0.63), (26.01, 0.78)],
    "FedAvg-FixMatch": [(47.01, 0.43), (11.95, 0.60), (46.20, 0.52), (9.45, 0.34)],
    "FedProx-FixMatch": [(47.20, 0.12), (25.61, 0.32), (45.55, 0.63), (9.21, 0.24)],
    "FedMatch": [(52.13, 0.34), (44.95, 0.49), (52.25, 0.81), (44.17, 0.19)],
}
S2C, C2S = (
    {column: [100.0] * 6 + [of_fedmatch] for column, of_fedmatch in zip(COLUMNS, of, strict=True)}
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
        "accuracy": by_row(COLUMNS, ACCURACY),
        "s2c": figures_of(list(ROWS), S2C),
        "c2s": figures_of(list(ROWS), C2S),
    },
)
