"""FedMatch (Jeong et al., ICLR 2021), table 5 and figure 6 (d): CIFAR-10: labels per class."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods_labels import ROWS
from .protocol import AT_CLIENTS, CIFAR, of_resnet9

SETTINGS = {
    **CIFAR,
    **AT_CLIENTS,
    "partition": "iid",
}
LABELS = {
    # at each client, which have 47,000 images in place of the paper's 54,000
    "1 label per class": {"labels.total": 1000},
    "5 labels per class": {"labels.total": 5000},  # the settings of table 1
    "10 labels per class": {"labels.total": 10000},
    "20 labels per class": {"labels.total": 20000},
}
QUICK = {
    "points-per-client": 400,
    "model": "resnet9-quarter",
    "num-rounds": 40,
    "evaluate-every": 5,
    "fraction-train": 0.25,
    "learning-rate": 0.01,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
            if labels == "1 label per class":
                settings["labels.total"] = 200
            if labels == "5 labels per class":
                settings["labels.total"] = 1000
            if labels == "10 labels per class":
                settings["labels.total"] = 2000
            if labels == "20 labels per class":
                settings["labels.total"] = 4000
        yield Column(labels, settings, of_resnet9(ROWS, quick), clients=20 if quick else 100)


COMPARED = ["FedProx-UDA", "FedProx-FixMatch", "FedMatch without decomposition", "FedMatch"]
ACCURACY = {
    "1 label per class": [31.95, 30.01, 37.70, 37.65],
    "5 labels per class": [47.45, 47.20, 47.51, 54.50],
    "10 labels per class": [41.40, 34.25, 51.15, 60.65],
    "20 labels per class": [47.15, 44.50, 62.70, 66.10],
}

TABLE = Table(
    title="CIFAR-10: labels per class",
    source="FedMatch (Jeong et al., ICLR 2021), table 5 and figure 6 (d)",
    measures=["accuracy"],
    note=(
        "The test set keeps its 10,000 images, so clients have fewer than the paper's. Table 1 "
        "of the paper has 52.13 for FedMatch with 5 labels."
    ),
    columns=columns,
    paper={"accuracy": figures_of(COMPARED, ACCURACY)},
)
