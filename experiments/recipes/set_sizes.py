"""Settings of ours, the same for all methods."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

SETTINGS = {
    "method": "fedul",
    "partition": "iid",
    "points-per-client": 10000,
    "validation-fraction": 0.1,
    "num-rounds": 6,
    "evaluate-every": 2,
    "local-epochs": 1,
    "batch-size": 128,
    "optimizer": "adam",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "cosine",
    "augment": "none",
    "model": "mlp",
    "fedul-consistency.ramp-up-rounds": 2,
}
DATA = {
    "Fashion-MNIST": {"dataset": "zalando-datasets/fashion_mnist"},
    # Elsewhere each set has one dominant class. Here shares are as even as those of groups drawn
    # at random.
    "Fashion-MNIST even shares": {
        "dataset": "zalando-datasets/fashion_mnist",
        "fedul.priors": "uniform",
    },
    "CIFAR-10 features": {"dataset": "uoft-cs/cifar10", "features": "efficientnet-lite0@128"},
}
SETS = {
    "16 points": {"fedul.num-sets": 625, "fedllp.bag-size": 24},
    "64 points": {"fedul.num-sets": 156, "fedllp.bag-size": 96},
    "128 points": {"fedul.num-sets": 78, "fedllp.bag-size": 192},
    "256 points": {"fedul.num-sets": 39, "fedllp.bag-size": 128},
    "1000 points": {
        "fedul.num-sets": 10,
        "fedllp.bag-size": 128,
    },
}
ROWS = {
    "FedUL": {},
    "FedUL with consistency": {"method": "fedul-consistency"},
    "FedUL with assignment": {"method": "fedul-assign"},
    "FedLLP": {"method": "fedllp"},
    "LLP-DC": {"method": "fedllp-dc"},
    "LLP-PVC": {"method": "fedllp-pvc"},
    "LLPFC": {"method": "fedllp-fc"},
}


def columns(_quick: bool) -> Iterator[Column]:
    """The columns, the same at both sizes."""
    for (data, of_data), (sets, of_sets) in product(DATA.items(), SETS.items()):
        settings = {**SETTINGS, **of_data, **of_sets}
        rows = deepcopy(ROWS)
        for row in ("FedLLP", "LLP-DC", "LLP-PVC"):  # a batch consists of whole bags
            rows[row]["batch-size"] = 128 if sets in ("256 points", "1000 points") else 192
        if sets == "256 points":
            rows["LLP-PVC"] |= {"fedllp.bag-size": 0, "local-epochs": 2}
        if sets == "1000 points":
            del rows["LLP-PVC"]
        yield Column(f"{data} {sets}", settings, rows, clients=2)


SEARCH = Search(
    trials=4,
    seeds=1,
    rungs=1,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
        ],
    },
)

TABLE = Table(
    title="FedUL, its forms and methods of proportions by the size of the sets",
    source="Settings of ours, the same for all methods",
    measures=["test-error"],
    note=(
        "Two clients of 10,000 points. In every row a round has about 78 steps, of about 128 "
        "points. Up to 128 points a bag is a whole set (sets differ in size, so a bag may have "
        "half as many more). Of larger sets FedLLP and LLP-DC take parts, and LLP-PVC, which "
        "cannot, takes whole sets and passes over them more often; with 1,000 points one of its "
        "runs took 13 times as long as one of FedUL, and it has no row there."
    ),
    columns=columns,
    search=SEARCH,
)
