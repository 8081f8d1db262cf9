"""Settings of ours beside FedUL's table 1."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

SETTINGS = {
    "method": "fedul",
    "dataset": "uoft-cs/cifar10",
    "features": "efficientnet-lite0@128",
    "model": "linear",
    "validation-fraction": 0.2,
    "num-rounds": 20,
    "local-epochs": 1,
    "batch-size": 128,
    "optimizer": "adam",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "cosine",
    "augment": "none",
    "partition": "majority",
    "fedul.priors": "dominant",
    "fedul.overlap": "shared",
}
SETS = {
    "Non-IID M=10": {"fedul.num-sets": 10},
    "Non-IID M=40": {"fedul.num-sets": 40},
}
ROWS = {
    "FedUL": {},
    "FedUL with consistency": {"method": "fedul-consistency"},
    "FedUL with assignment": {"method": "fedul-assign"},
}


def columns(_quick: bool) -> Iterator[Column]:
    """The columns, the same at both sizes."""
    for sets, of_sets in SETS.items():
        settings = {**SETTINGS, **of_sets}
        yield Column(sets, settings, ROWS, clients=5)


SEARCH = Search(
    trials=10,
    seeds=2,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
            {"optimizer": "adam", "learning-rate": 1e-2},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
        ],
        "model": [{}, {"model": "mlp"}],
        "batch": [{"batch-size": 32}, {"batch-size": 128}],
        "regularization": [{}, {"weight-decay": 1e-3}],
        "weight": [{"fedul-consistency.weight": 0.3}, {"fedul-consistency.weight": 1.0}],
        "threshold": [
            {"fedul-consistency.threshold": 0.95},
            {"fedul-consistency.threshold": "adaptive"},
            {"fedul-consistency.threshold": 0.5},
        ],
    },
)

TABLE = Table(
    title="FedUL with consistency or assignment, on CIFAR-10 by pretrained features",
    source="Settings of ours beside FedUL's table 1",
    measures=["test-error"],
    note=(
        "A linear layer or a small network on features of EfficientNet-Lite0 with ImageNet "
        "weights, as in recipes/fedul-cifar10-features. Strong views have noise, and some "
        "features are 0."
    ),
    columns=columns,
    search=SEARCH,
)
