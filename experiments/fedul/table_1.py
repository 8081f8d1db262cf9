"""FedUL (Lu et al., ICLR 2022), table 1: Benchmark data sets, 5 clients."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from typing import Any

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS
from .search import SEARCH

SETTINGS = {
    "method": "fedul",
    "validation-fraction": 0.2,
    "num-rounds": 100,
    "local-epochs": 1,
    "batch-size": 128,
    "optimizer": "adam",
    "learning-rate": 1e-4,
    "learning-rate-schedule": "constant",
    "fedul.priors": "dominant",
    "fedul.overlap": "shared",
}
DATA = {
    "MNIST": {"dataset": "ylecun/mnist", "model": "cnn6", "augment": "rotate"},
    # Without the first pooling, and from ImageNet weights, as the paper.
    "CIFAR-10": {
        "dataset": "uoft-cs/cifar10",
        "model": "resnet18-fedul",
        "start-from": "torchvision",
        "augment": "flip",
    },
}
L1 = {
    **{("MNIST", 10): 1e-5, ("MNIST", 20): 5e-6, ("MNIST", 40): 2e-6},
    **{("CIFAR-10", 10): 2e-5, ("CIFAR-10", 20): 1e-5, ("CIFAR-10", 40): 4e-6},
}
QUICK = {
    "points-per-client": 2000,
    "model": "cnn6-quarter",
    "start-from": "",
    "num-rounds": 40,
    "evaluate-every": 10,
    "learning-rate": 1e-3,
}


def rows_of(data: str, quick: bool) -> dict[str, dict[str, Any]]:
    """The rows on a data set."""
    rows = deepcopy(ROWS)
    # The authors' ramp and radius. Quick columns have the text's, with which they were searched.
    rows["FedLLP-VAT"]["fedllp-vat.recipe"] = "paper" if quick else "release"
    if data == "CIFAR-10":  # appendix D.2
        rows["FedLLP-VAT"] |= {"fedllp-vat.alpha": 0.05, "fedllp-vat.radius": 6.0}
    if quick:
        # A tenth of few points is one step an epoch. With "sets" it makes as many steps as FedUL.
        rows["FedAvg 10 %"]["supervised.steps"] = "sets"
        # Its best round may be one of the five before it relabels.
        rows["FedPL"]["evaluate-every"] = 1
    if data == "MNIST":  # CIFAR-10's models start from weights that random features do not have
        rows["closed form"] = {
            "method": "closed-form",
            "model": "random-features",
            "num-rounds": 2,
        }
    return rows


def columns(quick: bool, clients: int = 5) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for data, split, sets in product(DATA, ("IID", "Non-IID"), (10, 20, 40)):
        settings = {**SETTINGS, **DATA[data], "fedul.num-sets": sets, "l1": L1[data, sets]}
        settings["partition"] = "iid" if split == "IID" else "majority"
        if data == "MNIST" and split == "IID":
            # The authors' code shares one matrix of priors among the clients, the sum of a draw
            # for each of them.
            settings["fedul.shared-prior-draws"] = clients
        if quick:
            settings |= QUICK
            if data == "MNIST" and sets == 10 and clients == 5:  # table 1 alone
                settings["evaluate-every"] = 5
        yield Column(f"{data} {split} M={sets}", settings, rows_of(data, quick), clients)


COMPARED = ["FedUL", "FedPL", "FedLLP", "FedLLP-VAT", "FedAvg 10 %"]
TEST_ERROR = {
    "MNIST IID M=10": [(0.78, 0.06), (2.12, 0.10), (19.00, 15.90), (20.53, 5.39), (1.79, 0.09)],
    "MNIST IID M=20": [(1.12, 0.09), (2.98, 0.15), (4.38, 3.95), (4.40, 5.11), (1.79, 0.09)],
    "MNIST IID M=40": [(1.00, 0.29), (3.90, 0.22), (10.11, 15.74), (11.96, 9.56), (1.79, 0.09)],
    "MNIST Non-IID M=10": [
        (2.98, 1.72),
        (15.54, 3.48),
        (20.52, 15.00),
        (23.39, 15.34),
        (3.82, 1.56),
    ],
    "MNIST Non-IID M=20": [(1.77, 0.49), (7.54, 2.77), (6.63, 7.94), (11.76, 6.60), (3.82, 1.56)],
    "MNIST Non-IID M=40": [(1.64, 0.18), (5.76, 0.90), (5.53, 2.51), (7.82, 10.73), (3.82, 1.56)],
    "CIFAR-10 IID M=10": [
        (18.56, 0.04),
        (34.60, 0.30),
        (77.01, 5.02),
        (77.56, 8.71),
        (32.85, 1.03),
    ],
    "CIFAR-10 IID M=20": [
        (19.66, 0.30),
        (42.06, 1.63),
        (78.74, 6.96),
        (84.18, 5.95),
        (32.85, 1.03),
    ],
    "CIFAR-10 IID M=40": [
        (20.31, 0.69),
        (46.20, 0.67),
        (73.75, 4.78),
        (78.65, 6.91),
        (32.85, 1.03),
    ],
    "CIFAR-10 Non-IID M=10": [
        (42.92, 3.02),
        (70.65, 2.38),
        (81.12, 5.41),
        (81.55, 7.09),
        (58.62, 8.63),
    ],
    "CIFAR-10 Non-IID M=20": [
        (35.24, 0.98),
        (63.53, 1.24),
        (65.51, 13.16),
        (70.51, 7.66),
        (58.62, 8.63),
    ],
    "CIFAR-10 Non-IID M=40": [
        (31.43, 1.72),
        (53.78, 0.13),
        (65.72, 3.93),
        (60.23, 5.71),
        (58.62, 8.63),
    ],
}

TABLE = Table(
    title="Benchmark data sets, 5 clients",
    source="FedUL (Lu et al., ICLR 2022), table 1",
    measures=["test-error"],
    note=(
        "CIFAR-10 models start from ImageNet weights, as the paper's; quick ones from scratch. "
        "The paper has one figure of FedAvg 10 % for all M."
    ),
    columns=columns,
    paper={"test-error": figures_of(COMPARED, TEST_ERROR)},
    search=SEARCH,
)
