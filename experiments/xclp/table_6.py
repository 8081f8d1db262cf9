"""Cross-client label propagation (Scott, Yeo and Lampert), table 6: FEMNIST, 3,597 writers."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table

from .search import SEARCH

SETTINGS = {
    "method": "xclp-predict",
    "dataset": "./femnist",  # to be written by hand, see experiments/README.md
    "partition": "natural",
    "natural.column": "writer_id",
    "validation-fraction": 0.1,
    "labels.new-fraction": 0.2,
    "xclp-predict.groups": 50,
    "xclp.secure": "plaintext",
}
# FedAvg on two linear layers; the paper's width, rounds and step size are lost, these are ours
START = {
    "method": "labels-only",
    "num-rounds": 200,
    "evaluate-every": 10,
    "fraction-train": 0.02,
    "client-weights": "uniform",
    "local-epochs": 1,
    "batch-size": 10,
    "optimizer": "sgd",
    "learning-rate": 0.05,
    "learning-rate-schedule": "constant",
    "augment": "none",
}
# not run: no copy of the data was at hand
QUICK = {
    "dataset": "./femnist-100",
    "xclp-predict.groups": 2,
}
QUICK_START = {
    "num-rounds": 60,
    "evaluate-every": 20,
    "fraction-train": 0.2,
}
ROWS = {"XCLP": {}}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    clients = 100 if quick else 3597
    for features, percent in product(("identity", "linear"), (10, 25, 50)):
        # A part of a writer's training points has labels.
        settings = {**SETTINGS, "labels.fraction": percent / 100, **(QUICK if quick else {})}
        name, start = f"{features} {percent} %", None
        if features == "identity":
            settings["xclp-predict.features"] = "pixels"
        else:
            # The first of two linear layers that FedAvg trains. The model's own labels are FedAvg's
            # column.
            settings |= {"model": "mlp-linear", "xclp-predict.features": "model"}
            start = {**settings, **START, **(QUICK_START if quick else {})}
            folder = "runs/xclp/table-6/quick" if quick else "runs/xclp/table-6"
            settings["start-from"] = f"{folder}/training-{percent / 100:g}"
        yield Column(name, settings, ROWS, clients, start)


TABLE = Table(
    title="FEMNIST, 3,597 writers",
    source="Cross-client label propagation (Scott, Yeo and Lampert), table 6",
    measures=["balanced-accuracy", "balanced-accuracy-alone", "balanced-accuracy-network"],
    note=(
        "The text that these were written from has lost the paper's figures. The fractions are "
        "ours."
    ),
    columns=columns,
    search=SEARCH,
)
