"""Cross-client label propagation (Scott, Yeo and Lampert), table 4: CIFAR-10, 100 clients."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

from fedul_flwr.experiments.table import Column, Table

from .methods import ROWS
from .search import SEARCH

SETTINGS = {
    "method": "xclp",
    "dataset": "uoft-cs/cifar10",
    "partition": "iid",
    "validation-fraction": 0.1,
    "model": "cnn13",
    "num-rounds": 3000,
    "semi.labels-only-rounds": 1500,
    # labels from augmented images, batches of 100 for clients without labels
    "semi.recipe": "release",
    "evaluate-every": 10,
    "fraction-train": 0.05,
    "client-weights": "uniform",
    "local-epochs": 5,
    "batch-size": 50,
    "optimizer": "sgd",
    "learning-rate": 0.3,  # the authors' code's for 50 labels in a batch
    "learning-rate-schedule": "cosine",
    "learning-rate-rounds": 2000,
    "weight-decay": 2e-4,
    "augment": "translate-flip",
    "xclp.secure": "plaintext",
}
SPLIT = {
    "IID": {},
    # Labels "according to their own distribution": in the authors' code each client's labels are
    # of 5 classes, as many of each, and unlabeled points are IID over all ten.
    "Non-IID": {"labels.classes-per-client": 5},
}
LABELS = {
    "1000 labels": {"labels.total": 1000},
    "5000 labels": {"labels.total": 5000},
}
LABELED = {
    # of 100 clients
    "at 100 clients": {"labels.labeled-clients": 1.0},
    "at 50 clients": {"labels.labeled-clients": 0.5},
}
QUICK = {
    "points-per-client": 600,
    "model": "lenet",
    "num-rounds": 120,
    "semi.labels-only-rounds": 100,
    "semi.recipe": "paper",  # as in the stored runs
    "evaluate-every": 20,
    "fraction-train": 0.25,
    "local-epochs": 2,
    "learning-rate": 0.3,
    "learning-rate-rounds": 130,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for (split, of_split), (labels, of_labels), (labeled, of_labeled) in product(
        SPLIT.items(), LABELS.items(), LABELED.items()
    ):
        settings = {**SETTINGS, **of_split, **of_labels, **of_labeled}
        rows = deepcopy(ROWS)
        # step sizes of the authors' code for 10 labels in a batch
        if labels == "1000 labels" and labeled == "at 100 clients":
            settings["learning-rate"] = 0.05
        # 20 labels in a batch
        if labels == "1000 labels" and labeled == "at 50 clients":
            settings["learning-rate"] = 0.1
        if quick:
            settings |= QUICK
            # 500 labels of five classes at a client are more than 600 points have.
            if split == "Non-IID" and labels == "5000 labels" and labeled == "at 50 clients":
                settings["points-per-client"] = 1200
            rows["FedMatch"]["learning-rate"] = 0.01
            rows["FedSiam"]["model"] = "lenet+head"
        yield Column(f"{split} {labels} {labeled}", settings, rows, clients=20 if quick else 100)


TABLE = Table(
    title="CIFAR-10, 100 clients",
    source="Cross-client label propagation (Scott, Yeo and Lampert), table 4",
    measures=["accuracy"],
    note="The text that these were written from has lost the paper's figures.",
    columns=columns,
    search=SEARCH,
)
