"""A bi-objective approach for enhancing FedUL, results table."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS

SETTINGS = {
    "method": "fedul",
    "dataset": "ylecun/mnist",
    "validation-fraction": 0.2,  # 12,000 points,
    "server-fraction": 0.2,  # 12,000 with labels at the server, and 36,000 at the clients
    "model": "cnn6",
    "num-rounds": 100,
    "local-epochs": 1,
    "batch-size": 100,
    "optimizer": "adam",
    "learning-rate": 1e-4,
    "l1": 1e-5,
    "augment": "rotate",
    "fedul.num-sets": 10,
    "fedul.priors": "dominant",
    "fedul.overlap": "shared",
    "learning-rate-schedule": "constant",
}
SPLIT = {
    "MNIST IID": {"partition": "iid", "fedul.shared-prior-draws": 5},  # as in FedUL's table 1
    "MNIST Non-IID": {"partition": "majority"},
}
QUICK = {
    "points-per-client": 2000,
    "model": "cnn6-quarter",
    "num-rounds": 40,
    "evaluate-every": 10,
    "learning-rate": 1e-3,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for split, of_split in SPLIT.items():
        settings = {**SETTINGS, **of_split}
        if quick:
            settings |= QUICK
        yield Column(split, settings, ROWS, clients=5)


COMPARED = ["FedUL", "FedUL + M1", "FedUL + M2"]
TEST_ERROR = {
    "MNIST IID": [0.78, 0.69, 0.69],
    "MNIST Non-IID": [2.98, 0.77, 0.79],
}

# Each row tries its own settings and seven points of FedUL's space (../fedul/search.py) in as
# many rounds as the experiment has. The server's training takes the same step sizes as the
# clients'.
SEARCH = Search(
    trials=8,
    reduction_factor=4,
    rungs=1,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.03},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.003},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
            {"optimizer": "adam", "learning-rate": 1e-4},
        ],
        "batch": [
            {"batch-size": 32, "learning-rate-schedule": "cosine"},
            {"batch-size": 128, "learning-rate-schedule": "cosine"},
        ],
        "regularization": [{}, {"augment": "affine", "weight-decay": 1e-3}],
    },
)

TABLE = Table(
    title="FedUL with a small labeled set at the server",
    source="A bi-objective approach for enhancing FedUL, results table",
    measures=["test-error"],
    note="The report takes FedUL's figures from the FedUL paper; server only is not in it.",
    columns=columns,
    paper={"test-error": figures_of(COMPARED, TEST_ERROR)},
    search=SEARCH,
)
