"""Settings of ours: Tables: breast cancer, and a made table of 20 classes at 100 clients."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

# The data: python experiments/made_table.py made-table
SETTINGS = {
    "method": "fedul",
    "model": "linear",
    "num-rounds": 40,
    "selection": "last",
    "local-epochs": 1,
    "learning-rate-schedule": "cosine",
    "augment": "none",
    "evaluate-every": 10,
}
DATA = {
    "breast cancer": {
        "dataset": "breast-cancer",
        "fedul.num-sets": 2,
        "batch-size": 16,
        "learning-rate": 0.01,
    },
    "20 classes": {
        "dataset": "./made-table",
        "fedul.num-sets": 20,
        "batch-size": 20,
        "learning-rate": 0.02,
    },
}
ROWS = {
    "FedUL": {},
    "all labels": {"method": "supervised"},
}
QUICK = {
    "num-rounds": 30,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for data, of_data in DATA.items():
        settings = {**SETTINGS, **of_data}
        if quick:
            settings |= QUICK
        yield Column(data, settings, ROWS, clients=5 if data == "breast cancer" else 100)


SEARCH = Search(
    space={
        "step": [
            {"optimizer": "adam", "learning-rate": 0.03},
            {"optimizer": "adam", "learning-rate": 0.01},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
        ],
        "batch": [{}, {"batch-size": 64}],
        "weight-decay": [{"weight-decay": 0.0}, {"weight-decay": 1e-3}],
    },
)

TABLE = Table(
    title="Tables: breast cancer, and a made table of 20 classes at 100 clients",
    source="Settings of ours",
    measures=["test-error"],
    note=(
        "Breast cancer (569 points, 30 numbers) ships with scikit-learn; "
        "experiments/made_table.py makes the other table (50,000 points, 40 numbers). FedUL has "
        "as many unlabeled sets as there are classes (M = K), and the supervised row has the "
        "labels of the same points. The breast-cancer test set has 113 points: one is 0.9 "
        "points. Settings were chosen by hand and searched for no row."
    ),
    columns=columns,
    search=SEARCH,
)
