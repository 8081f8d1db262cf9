"""Settings of ours beside XCLP's table 4."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

from fedul_flwr.experiments.table import Column, Table

SETTINGS = {
    "method": "xclp",
    "dataset": "uoft-cs/cifar10",
    "partition": "iid",
    "features": "efficientnet-lite0@128",
    "model": "mlp",
    "model-layers": 1,
    "validation-fraction": 0.2,
    "num-rounds": 110,
    "semi.labels-only-rounds": 80,
    "evaluate-every": 10,
    "selection": "last",
    "fraction-train": 0.05,
    "client-weights": "uniform",
    "local-epochs": 1,
    "batch-size": 10,
    "optimizer": "sgd",
    "learning-rate": 0.1,
    "learning-rate-schedule": "cosine",
    "augment": "none",
    "labels.labeled-clients": 1.0,
    "xclp.secure": "plaintext",
}
SPLIT = {
    "IID": {},
    "Non-IID": {"labels.classes-per-client": 5},  # as in ../xclp/table_4.py
}
LABELS = {
    "1000 labels": {"labels.total": 1000},
    "5000 labels": {"labels.total": 5000},
}
ROWS = {
    "labels alone": {"method": "labels-only"},
    "local LP": {"method": "local-lp"},
    "network's labels": {"method": "pseudo-label"},
    "FedSem+": {"method": "fedsem"},
    # As many unlabeled points in a batch as make a pass over all of them in 8 steps.
    "FedMatch": {"method": "fedmatch", "fedmatch.threshold": 0.85, "ssl.unlabeled-batch-size": 50},
    # It has two heads.
    "FedSiam": {"method": "fedsiam", "model": "mlp+head"},
    "XCLP": {},
    # As in xclp_cifar10.py.
    "XCLP with k = 30 and alpha = 0.9": {"xclp.k": 30, "xclp.alpha": 0.9},
    # Shorter codes: all 40,000 points are compared at once.
    "xclp-predict": {"method": "xclp-predict", "xclp.num-bits": 1024},
    "closed form": {
        "method": "closed-form-labels",
        "model": "linear",
        "model-layers": 2,  # the default, as a linear model has none
        "num-rounds": 2,
    },
}
QUICK = {
    "points-per-client": 200,
    "num-rounds": 40,
    "semi.labels-only-rounds": 30,
    "fraction-train": 0.25,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for (split, of_split), (labels, of_labels) in product(SPLIT.items(), LABELS.items()):
        settings = {**SETTINGS, **of_split, **of_labels}
        rows = deepcopy(ROWS)
        # Tried for every row: 0.1 and 0.03, for FedMatch, whose loss of labels has a weight of 10,
        # a tenth of them.
        rows["local LP"]["learning-rate"] = 0.03
        rows["FedMatch"]["learning-rate"] = 0.01
        rows["FedSiam"]["learning-rate"] = 0.03
        # Steps at a client: 80 rounds of 1 and 30 of 39 in the second stage, or 80 of 5 and 30 of
        # 35. An epoch of labels alone and of FedMatch is 1 step, or 5.
        rows["labels alone"]["local-epochs"] = 10 if labels == "1000 labels" else 3
        rows["FedMatch"]["local-epochs"] = 10 if labels == "1000 labels" else 2
        if quick:
            settings |= QUICK
            # 250 labels at a client, of five classes if Non-IID
            if labels == "5000 labels":
                settings["points-per-client"] = 1000
        yield Column(f"{split} {labels}", settings, rows, clients=20 if quick else 100)


TABLE = Table(
    title="XCLP and its rivals on CIFAR-10 by pretrained features",
    source="Settings of ours beside XCLP's table 4",
    measures=["test-error"],
    note=(
        "A network with one hidden layer is trained on features of EfficientNet-Lite0 with "
        "ImageNet weights, which stay as they are; the paper trains a 13-layer network on the "
        "images. All training rows have as many rounds, and about as many steps. Step sizes "
        "were chosen by validation errors of one seed in the first column, among the same two "
        "for every row. The row xclp-predict trains nothing: its errors are those of the labels "
        "that it gives the clients' own points."
    ),
    columns=columns,
)
