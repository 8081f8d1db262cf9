"""Settings of ours beside FedMatch's table 1, Batch-IID."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table, by_row

from ..fedmatch.table_1 import ACCURACY as OF_PAPER

# As in ../fedmatch/table_1.py, but for: the step size stays as it is (there it falls where the
# loss on validation points does not), and the last round is kept (the best on these). As the text
# in place of the authors' code: tau of FedMatch and weight decay. RandAugment and ties of votes
# are our defaults.
SETTINGS = {
    "method": "fedmatch",
    "fedmatch.threshold": 0.85,
    "dataset": "uoft-cs/cifar10",
    "partition": "iid",
    "validation-fraction": 0.06,
    "model": "resnet9",
    "num-rounds": 200,
    "selection": "last",
    "fraction-train": 0.05,
    "local-epochs": 1,
    "optimizer": "sgd",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "constant",
    "augment": "none",
    "weight-decay": 1e-4,
}
LABELS = {
    "labels at clients": {"labels.total": 5000, "batch-size": 10},
    "labels at server": {
        "scenario.labels-at": "server",
        "server-fraction": 0.02,
        "batch-size": 100,
        "fedmatch.l1-weight": 1e-5,
        "fedmatch.psi-cutoff": 1e-5,
        "fedmatch.difference-threshold": 1e-5,
    },
}
ROWS = {
    # The rows of FedMatch's table 1, and rows that tell where FedMatch's gain comes from: the
    # given labels without an unlabeled point (at the clients, or at the server alone), FedMatch
    # without unlabeled points, and plain models whose first weights are twice as large: psi
    # follows sigma, so that is where their sum goes. Without psi its penalty and cutoff are at
    # their defaults.
    "FedAvg-SL": {"method": "all-labels"},
    "FedProx-SL": {"method": "all-labels", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "labels alone": {"method": "given-labels"},
    "labels alone; first weights times 2": {"method": "given-labels", "init-scale": 2.0},
    "FedAvg-UDA": {"method": "uda"},
    "FedProx-UDA": {"method": "uda", "base": "fedprox", "fedprox.proximal-mu": 1e-2},
    "FedAvg-FixMatch": {"method": "fixmatch", "fixmatch.threshold": 0.85},
    "FedProx-FixMatch": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.85,
        "base": "fedprox",
        "fedprox.proximal-mu": 1e-2,
    },
    "FedMatch without decomposition": {
        "fedmatch.decomposition": False,
        "fedmatch.l1-weight": 1e-4,
        "fedmatch.psi-cutoff": 5e-6,
    },
    "FedMatch without decomposition; first weights times 2": {
        "fedmatch.decomposition": False,
        "fedmatch.l1-weight": 1e-4,
        "fedmatch.psi-cutoff": 5e-6,
        "init-scale": 2.0,
    },
    "FedMatch without unlabeled points": {"fedmatch.consistency-weight": 0.0},
    "FedMatch": {},
}
QUICK = {
    "points-per-client": 200,  # (470)
    "validation-fraction": 0.02,
    "model": "resnet9-quarter",
    "num-rounds": 60,  # with three times the step size
    "evaluate-every": 20,
    "learning-rate": 3e-3,
    "ssl.unlabeled-batch-size": 30,  # (100)
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for labels, of_labels in LABELS.items():
        settings = {**SETTINGS, **of_labels}
        if quick:
            settings |= QUICK
            if labels == "labels at server":
                settings |= {
                    "points-per-client": 100,
                    "server.points": 500,
                    "batch-size": 50,
                    "ssl.unlabeled-batch-size": 50,
                }
        yield Column(labels, settings, ROWS, clients=100)


# Of Batch-IID, the first two columns there.
ACCURACY = {row: figures[:2] for row, figures in OF_PAPER.items()}

# Each row tries its own settings and five points of this space in as many rounds as the experiment
# has.
SEARCH = Search(
    trials=8,
    reduction_factor=3,
    rungs=1,
    space={
        "step": [
            {"learning-rate": 3e-2},
            {"learning-rate": 1e-2},
            {"learning-rate": 3e-3},
            {"learning-rate": 1e-3},
            {"momentum": 0.9, "learning-rate": 3e-3},
            {"momentum": 0.9, "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
        ],
        "schedule": [{}, {"learning-rate-schedule": "cosine"}],
    },
)

TABLE = Table(
    title="FedMatch and its rivals on CIFAR-10 by our recipe",
    source="Settings of ours beside FedMatch's table 1, Batch-IID",
    measures=["accuracy"],
    note=(
        "All rows share one step size, chosen by hand and searched for none. The last round "
        "counts. Quick is the recipe with a quarter of the network's width, fewer points and "
        "fewer, longer steps."
    ),
    columns=columns,
    paper={"accuracy": by_row(list(LABELS), ACCURACY)},
    search=SEARCH,
)
