"""FedMatch (Jeong et al., ICLR 2021), table 2 (curves: figure 8)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, figures_of

from .protocol import AT_CLIENTS, AT_SERVER, of_resnet9
from .protocol import SETTINGS as SHARED

SETTINGS = {
    **SHARED,
    "dataset": "zalando-datasets/fashion_mnist",
    "validation-fraction": 0.058333,
    "num-rounds": 100,
    "evaluate": "local",
    # all clients in every round, unlabeled points in 10 steps of 10 rounds
    "partition": "imbalanced",
    "scenario.streaming-steps": 10,
    "scenario.rounds-per-step": 10,
}
LABELS = {
    # 5 labels per class at each client, which have 56,500 images in place of the paper's 63,000.
    "labels at clients": {
        **AT_CLIENTS,
        "labels.total": 500,
    },
    # 100 labels per class; clients have 55,500 images in place of 63,000. A client alone has no
    # label.
    "labels at server": {
        **AT_SERVER,
        "server-fraction": 0.016666,
    },
}
ROWS = {
    # Local runs share nothing. SL has the labels of all points.
    "Local-SL": {"method": "all-labels", "base": "local"},
    "Local-UDA": {"method": "uda", "base": "local"},
    "Local-FixMatch": {"method": "fixmatch", "fixmatch.threshold": 0.85, "base": "local"},
    "FedProx-SL": {"method": "all-labels", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedProx-UDA": {"method": "uda", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedProx-FixMatch": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.85,
        "base": "fedprox",
        "fedprox.proximal-mu": 1e-2,
    },
    "FedMatch": {},
}
QUICK = {
    "points-per-client": 500,
    "model": "lenet",
    "num-rounds": 30,
    "scenario.rounds-per-step": 3,
    "evaluate-every": 3,
    "learning-rate": 0.01,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
        rows = of_resnet9(ROWS, quick)
        if labels == "labels at server":
            rows = {row: rows[row] for row in SHARED_ROWS}
        yield Column(f"Streaming-NonIID {labels}", settings, rows, clients=10)


CLIENTS, SERVER = (f"Streaming-NonIID {labels}" for labels in LABELS)
LOCAL = ("Local-SL", "Local-UDA", "Local-FixMatch")
SHARED_ROWS = ("FedProx-SL", "FedProx-UDA", "FedProx-FixMatch", "FedMatch")
AT_CLIENTS = [(82.06, 0.26), (73.71, 0.17), (62.40, 0.43), (77.95, 0.14)]
AT_SERVER = [(77.43, 0.42), (83.34, 0.21), (73.71, 0.32), (84.15, 0.31)]
PAPER = {
    "accuracy": {
        **figures_of(
            (*LOCAL, *SHARED_ROWS),
            {CLIENTS: [(87.19, 0.36), (70.70, 0.28), (62.62, 0.32), *AT_CLIENTS]},
        ),
        **figures_of(SHARED_ROWS, {SERVER: AT_SERVER}),
    },
    "s2c": figures_of(SHARED_ROWS, {CLIENTS: [100.0] * 3 + [37.0], SERVER: [100.0] * 3 + [14.0]}),
    "c2s": figures_of(SHARED_ROWS, {CLIENTS: [100.0] * 3 + [48.0], SERVER: [100.0] * 3 + [63.0]}),
}

TABLE = Table(
    title="Fashion-MNIST, 10 clients, accuracy of their own models",
    source="FedMatch (Jeong et al., ICLR 2021), table 2 (curves: figure 8)",
    measures=["accuracy", "s2c", "s2c-release", "c2s"],
    note="The test set keeps its 10,000 images, so clients have fewer than the paper's.",
    columns=columns,
    paper=PAPER,
)
