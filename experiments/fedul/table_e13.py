"""FedUL (Lu et al., ICLR 2022), table E.13: Benchmark data sets, 10 clients."""

from functools import partial

from fedul_flwr.experiments.table import Table, figures_of

from .search import SEARCH
from .table_1 import columns

COMPARED = ["FedUL", "FedPL", "FedLLP", "FedLLP-VAT", "FedAvg 10 %"]
TEST_ERROR = {
    "MNIST IID M=10": [(0.74, 0.14), (2.19, 0.04), (10.11, 7.12), (25.83, 22.64), (1.58, 0.23)],
    "MNIST IID M=20": [(1.05, 0.05), (2.55, 0.30), (24.23, 17.52), (28.40, 23.20), (1.58, 0.23)],
    "MNIST IID M=40": [(1.47, 0.11), (3.13, 0.25), (32.53, 16.93), (34.46, 15.46), (1.58, 0.23)],
    "MNIST Non-IID M=10": [
        (1.91, 0.16),
        (12.24, 1.36),
        (20.81, 14.72),
        (17.26, 10.39),
        (3.03, 0.24),
    ],
    "MNIST Non-IID M=20": [(1.45, 0.27), (5.73, 0.89), (17.67, 11.48), (18.45, 4.30), (3.03, 0.24)],
    "MNIST Non-IID M=40": [(1.27, 0.12), (4.16, 0.56), (14.98, 10.11), (13.62, 5.47), (3.03, 0.24)],
    "CIFAR-10 IID M=10": [
        (20.40, 0.63),
        (40.47, 0.58),
        (76.23, 1.47),
        (76.25, 1.65),
        (33.57, 1.03),
    ],
    "CIFAR-10 IID M=20": [
        (21.61, 0.23),
        (46.44, 0.71),
        (78.10, 3.58),
        (76.26, 3.83),
        (33.57, 1.03),
    ],
    "CIFAR-10 IID M=40": [
        (22.71, 0.17),
        (51.58, 1.18),
        (79.10, 2.34),
        (80.44, 1.60),
        (33.57, 1.03),
    ],
    "CIFAR-10 Non-IID M=10": [
        (39.20, 0.79),
        (68.53, 1.14),
        (84.11, 2.63),
        (82.17, 2.58),
        (52.48, 1.55),
    ],
    "CIFAR-10 Non-IID M=20": [
        (34.12, 0.57),
        (61.49, 1.42),
        (71.69, 7.59),
        (72.34, 7.39),
        (52.48, 1.55),
    ],
    "CIFAR-10 Non-IID M=40": [
        (32.21, 1.02),
        (55.89, 2.19),
        (58.21, 4.95),
        (59.42, 9.59),
        (52.48, 1.55),
    ],
}

TABLE = Table(
    title="Benchmark data sets, 10 clients",
    source="FedUL (Lu et al., ICLR 2022), table E.13",
    measures=["test-error"],
    note=(
        "CIFAR-10 models start from ImageNet weights, as the paper's; quick ones from scratch. "
        "The paper has one figure of FedAvg 10 % for all M."
    ),
    columns=partial(columns, clients=10),
    paper={"test-error": figures_of(COMPARED, TEST_ERROR)},
    search=SEARCH,
)
