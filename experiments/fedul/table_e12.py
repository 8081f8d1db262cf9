"""FedUL (Lu et al., ICLR 2022), table E.12: Clients of 10, 20, 30, 40 and 50 sets."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table, figures_of

from .search import SEARCH
from .table_1 import DATA, L1, QUICK, SETTINGS, rows_of


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for data, split in product(DATA, ("IID", "Non-IID")):
        settings = {**SETTINGS, **DATA[data], "fedul.num-sets": 10, "fedul.num-sets-max": 50}
        settings["l1"] = L1[data, 20]  # the paper gives none for this table
        settings["partition"] = "iid" if split == "IID" else "majority"
        if data == "MNIST" and split == "IID":
            settings["fedul.shared-prior-draws"] = 5  # as in table 1
        if quick:
            settings |= QUICK
        yield Column(f"{data} {split}", settings, rows_of(data, quick), clients=5)


COMPARED = ["FedUL", "FedPL", "FedLLP", "FedLLP-VAT", "FedAvg 10 %"]
TEST_ERROR = {
    "MNIST IID": [(1.19, 0.11), (3.74, 0.78), (5.22, 5.38), (2.24, 0.05), (2.21, 0.07)],
    "MNIST Non-IID": [(2.31, 1.14), (12.03, 2.89), (4.26, 3.20), (3.88, 2.89), (3.42, 0.20)],
    "CIFAR-10 IID": [(31.17, 2.80), (45.49, 2.74), (84.16, 0.71), (86.01, 2.54), (42.27, 1.06)],
    "CIFAR-10 Non-IID": [
        (35.46, 1.40),
        (59.06, 3.73),
        (62.44, 16.99),
        (59.72, 18.73),
        (53.13, 0.22),
    ],
}

TABLE = Table(
    title="Clients of 10, 20, 30, 40 and 50 sets",
    source="FedUL (Lu et al., ICLR 2022), table E.12",
    measures=["test-error"],
    note=("CIFAR-10 models start from ImageNet weights, as the paper's; quick ones from scratch."),
    columns=columns,
    paper={"test-error": figures_of(COMPARED, TEST_ERROR)},
    search=SEARCH,
)
