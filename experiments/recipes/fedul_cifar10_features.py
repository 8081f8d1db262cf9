"""Settings of ours beside FedUL's table 1."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table, figures_of

from ..fedul.methods import ROWS

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
    "fedul.priors": "dominant",
    "fedul.overlap": "shared",
}
SPLIT = {
    "IID": {"partition": "iid"},
    "Non-IID": {"partition": "majority"},
}
SETS = {
    "M=10": {"fedul.num-sets": 10},
    "M=20": {"fedul.num-sets": 20},
    "M=40": {"fedul.num-sets": 40},
}


def columns(_quick: bool) -> Iterator[Column]:
    """The columns, the same at both sizes."""
    for (split, of_split), (sets, of_sets) in product(SPLIT.items(), SETS.items()):
        settings = {**SETTINGS, **of_split, **of_sets}
        rows = deepcopy(ROWS)
        # A linear layer has no other layer before it for the authors' dropout.
        rows["FedLLP"]["fedllp.dropout"] = 0.0
        # Weight and radius: appendix D.2.
        rows["FedLLP-VAT"] |= {
            "fedllp.dropout": 0.0,
            "fedllp-vat.alpha": 0.05,
            "fedllp-vat.radius": 6.0,
        }
        rows["closed form"] = {"method": "closed-form", "num-rounds": 2}
        yield Column(f"{split} {sets}", settings, rows, clients=5)


COMPARED = ["FedUL", "FedPL", "FedLLP", "FedLLP-VAT", "FedAvg 10 %"]
TEST_ERROR = {
    "IID M=10": [(18.56, 0.04), (34.60, 0.30), (77.01, 5.02), (77.56, 8.71), (32.85, 1.03)],
    "IID M=20": [(19.66, 0.30), (42.06, 1.63), (78.74, 6.96), (84.18, 5.95), (32.85, 1.03)],
    "IID M=40": [(20.31, 0.69), (46.20, 0.67), (73.75, 4.78), (78.65, 6.91), (32.85, 1.03)],
    "Non-IID M=10": [(42.92, 3.02), (70.65, 2.38), (81.12, 5.41), (81.55, 7.09), (58.62, 8.63)],
    "Non-IID M=20": [(35.24, 0.98), (63.53, 1.24), (65.51, 13.16), (70.51, 7.66), (58.62, 8.63)],
    "Non-IID M=40": [(31.43, 1.72), (53.78, 0.13), (65.72, 3.93), (60.23, 5.71), (58.62, 8.63)],
}

SEARCH = Search(
    trials=6,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
            {"optimizer": "adam", "learning-rate": 1e-2},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
        ],
        "model": [{}, {"model": "mlp"}],
        "relabeling": [{}, {"fedpl.relabel": False}],
        "batch": [{"batch-size": 32}, {"batch-size": 128}],
        "regularization": [{}, {"weight-decay": 1e-3}],
    },
)

TABLE = Table(
    title="FedUL and its rivals on CIFAR-10 by pretrained features",
    source="Settings of ours beside FedUL's table 1",
    measures=["test-error"],
    note=(
        "The paper trains all layers of a ResNet-18 from ImageNet weights. Here a linear layer "
        "is trained on features of EfficientNet-Lite0 with ImageNet weights, which stay as they "
        "are: it fits two cores, and the figures are not those of the same model."
    ),
    columns=columns,
    paper={"test-error": figures_of(COMPARED, TEST_ERROR)},
    search=SEARCH,
)
