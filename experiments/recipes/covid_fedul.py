"""Settings of ours, a stand-in for FedUL's table 2."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

# The data: python experiments/covid_hospitals.py DOWNLOADED covid-hospitals
SETTINGS = {
    "method": "fedul",
    "dataset": "./covid-hospitals/server",
    "image-size": 64,
    "validation-fraction": 0.5,
    "test-prior": "uniform",
    "model": "resnet18",
    "num-rounds": 100,
    "selection": "last",
    "local-epochs": 1,
    "batch-size": 32,
    "optimizer": "adam",
    "learning-rate": 1e-4,
    "learning-rate-schedule": "constant",
    "augment": "none",
    "l1": 2e-6,
}
SETS = {
    "M=6": {"client-data": "./covid-hospitals/5-hospitals-sets-6"},
    "M=12": {"client-data": "./covid-hospitals/5-hospitals-sets-12"},
}
ROWS = {
    "FedPL": {"method": "fedpl", "fedpl.warm-up-rounds": 5},
    "FedUL": {},
    "closed form": {"method": "closed-form", "model": "random-features", "num-rounds": 2},
    # FedAvg on labels of the same images at the same hospitals. With a tenth of them, 14 a
    # hospital, four epochs make the four steps that FedUL makes in one.
    "a tenth of the labels": {
        "method": "supervised",
        "client-data": "./covid-hospitals/5-hospitals-all",
        "local-epochs": 4,
        "supervised.label-fraction": 0.1,
    },
    "all labels": {"method": "supervised", "client-data": "./covid-hospitals/5-hospitals-all"},
}
ROWS_OF_SETS = ["FedPL", "FedUL", "closed form"]
QUICK = {
    "image-size": 32,
    "model": "resnet9-quarter",
    "num-rounds": 20,
    "evaluate-every": 5,
    "learning-rate": 1e-3,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for sets, of_sets in SETS.items():
        settings = {**SETTINGS, **of_sets}
        if quick:
            settings |= QUICK
        rows = {row: ROWS[row] for row in (ROWS if sets == "M=6" else ROWS_OF_SETS)}
        yield Column(sets, settings, rows, clients=5)


# Each row tries its own settings and seven points of this space in as many rounds as the
# experiment has.
SEARCH = Search(
    trials=8,
    reduction_factor=4,
    rungs=1,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.03},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.003},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.001},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
            {"optimizer": "adam", "learning-rate": 1e-4},
        ],
        "schedule": [{}, {"learning-rate-schedule": "cosine"}],
        "regularization": [{}, {"augment": "affine", "weight-decay": 1e-3}],
    },
)

TABLE = Table(
    title="COVID-19 X-rays at five hospitals with folders of their own",
    source="Settings of ours, a stand-in for FedUL's table 2",
    measures=["test-error"],
    note=(
        "Data and hospitals are those of experiments/covid_hospitals.py, not the paper's: three "
        "classes, 6 or 12 unlabeled sets a hospital. COVID-19 images come from another source "
        "than the others, so a model can tell the source: the rows compare methods and say "
        "nothing about diagnoses. The test set has 238 images: one is 0.4 points. Rows with "
        "labels do not depend on the number of sets."
    ),
    columns=columns,
    search=SEARCH,
)
