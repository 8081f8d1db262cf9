"""FedUL (Lu et al., ICLR 2022), table 2."""

from collections.abc import Iterator
from copy import deepcopy

from fedul_flwr.experiments.table import Column, Table, figures_of

from .methods import ROWS
from .search import SEARCH

# As the paper simulates it, from labeled images of six classes. The dataset is a folder with
# train/ and test/, each with one folder per class. Systems with unlabeled sets of their own:
# docs/own-data.md.
SETTINGS = {
    "method": "fedul",
    "dataset": "./rsna-hemorrhage",
    "image-size": 224,  # follows from the FLOPs of table D.8 too
    "partition": "iid",
    "validation-fraction": 0.2,
    # without the first pooling, which follows from the FLOPs of table D.8
    "model": "resnet18-fedul",
    "start-from": "torchvision",
    "num-rounds": 100,
    "local-epochs": 1,
    "batch-size": 128,
    "optimizer": "adam",
    "learning-rate": 1e-4,
    "learning-rate-schedule": "constant",
    "augment": "none",
    "fedul.priors": "uniform",
    "fedul.overlap": "shared",
}
SETS = {
    # a set is a hospital
    "M=12": {"fedul.num-sets": 12, "l1": 2e-6},
    "M=24": {"fedul.num-sets": 24, "l1": 8e-7},
    "M=48": {"fedul.num-sets": 48, "l1": 4e-7},
}
QUICK = {
    "image-size": 32,
    "points-per-client": 2000,
    "model": "cnn6-quarter",
    "start-from": "",
    "num-rounds": 40,
    "evaluate-every": 10,
    "learning-rate": 1e-3,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for sets, of_sets in SETS.items():
        settings = {**SETTINGS, **of_sets}
        rows = deepcopy(ROWS)
        # appendix D.2
        rows["FedLLP-VAT"] |= {
            "fedllp-vat.alpha": 0.05,
            "fedllp-vat.radius": 6.0,
            "fedllp-vat.recipe": "release",
        }
        if quick:
            settings |= QUICK
            rows["FedLLP-VAT"]["fedllp-vat.recipe"] = "paper"
            # A tenth of few points is one step an epoch. With "sets" it makes as many steps as
            # FedUL.
            rows["FedAvg 10 %"]["supervised.steps"] = "sets"
            # Its best round may be one of the five before it relabels.
            rows["FedPL"]["evaluate-every"] = 1
        yield Column(sets, settings, rows, clients=5)


COMPARED = ["FedPL", "FedUL", "FedAvg 10 %"]
TEST_ERROR = {
    "M=12": [46.30, 39.81, 46.78],
    "M=24": [42.09, 31.53, 46.78],
    "M=48": [40.92, 31.14, 46.78],
}
TEST_ERROR_1 = {
    "M=12": [44.69, 40.26, 46.79],
    "M=24": [42.71, 32.27, 46.79],
    "M=48": [41.44, 31.48, 46.79],
}
TEST_ERROR_2 = {
    "M=12": [46.42, 40.35, 46.44],
    "M=24": [42.18, 30.99, 46.44],
    "M=48": [40.38, 30.92, 46.44],
}
TEST_ERROR_3 = {
    "M=12": [46.29, 39.31, 47.19],
    "M=24": [42.30, 31.29, 47.19],
    "M=48": [41.06, 31.16, 47.19],
}
TEST_ERROR_4 = {
    "M=12": [47.55, 39.72, 47.29],
    "M=24": [41.79, 31.72, 47.29],
    "M=48": [41.44, 31.55, 47.29],
}
TEST_ERROR_5 = {
    "M=12": [46.53, 39.43, 46.20],
    "M=24": [41.46, 31.37, 46.20],
    "M=48": [40.26, 30.57, 46.20],
}

TABLE = Table(
    title="Hospitals: intracranial hemorrhage, 5 healthcare systems",
    source="FedUL (Lu et al., ICLR 2022), table 2",
    measures=[
        "test-error",
        "test-error-1",
        "test-error-2",
        "test-error-3",
        "test-error-4",
        "test-error-5",
    ],
    note=(
        "The paper has an error for each system. The systems test one model on equal shares of "
        "the test images, so that they differ by chance alone; the paper's test error here is "
        "their mean. It has one figure of FedAvg 10 % for all M."
    ),
    columns=columns,
    paper={
        "test-error": figures_of(COMPARED, TEST_ERROR),
        "test-error-1": figures_of(COMPARED, TEST_ERROR_1),
        "test-error-2": figures_of(COMPARED, TEST_ERROR_2),
        "test-error-3": figures_of(COMPARED, TEST_ERROR_3),
        "test-error-4": figures_of(COMPARED, TEST_ERROR_4),
        "test-error-5": figures_of(COMPARED, TEST_ERROR_5),
    },
    search=SEARCH,
)
