"""Settings of ours, the same for all methods."""

from collections.abc import Iterator
from copy import deepcopy

from fedul_flwr.experiments.table import Column, Table

from .protocol import CLOSED_FORM, XRAYS, cells
from .search import SEARCH

SETTINGS = {"method": "fedul", "batch-size": 50, "fedul.num-sets": 10}
ROWS = {
    "FedUL": {},
    "FedUL with consistency": {"method": "fedul-consistency"},
    "FedUL with assignment": {"method": "fedul-assign"},
    # Of a client with all classes it is FedUL.
    "FedUL with absent classes": {"fedul.absent-weight": 0.3},
    # Its last round makes the head and trains nothing.
    "FedUL with a last head": {"head": "closed-form"},
    "FedUL with heads": {"method": "fedul-heads"},
    "closed form": {"method": "closed-form", "num-rounds": 2},
    "FedPL": {"method": "fedpl"},
    "FedLLP": {"method": "fedllp"},
    "FedLLP-VAT": {"method": "fedllp-vat"},
    "LLP-DC": {"method": "fedllp-dc"},
    "LLP-PVC": {"method": "fedllp-pvc"},
    "all labels": {"method": "supervised"},
    "all labels in closed form": {
        "method": "closed-form-labels",
        "labels.fraction": 1.0,
        "num-rounds": 2,
    },
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for data, split, shared, clients in cells(quick):
        rows = deepcopy(ROWS)
        if quick:
            # The weight of strong views is to grow within a quarter of the rounds.
            for row in ("FedUL with consistency", "FedUL with assignment"):
                rows[row]["fedul-consistency.ramp-up-rounds"] = 8
        settings = {**SETTINGS, **shared}
        for row in ("closed form", "all labels in closed form"):
            rows[row] |= CLOSED_FORM[data]
        if data == XRAYS:
            settings |= {"fedul.num-sets": 6, "batch-size": 25}
        yield Column(f"{data} {split}", settings, rows, clients)


TABLE = Table(
    title="Reference: no labels, class shares of ten sets a client",
    source="Settings of ours, the same for all methods",
    measures=["test-error", "last-error", "seconds", "megabytes"],
    note=(
        "Sets are disjoint, and their class shares are exact. FedLLP, FedLLP-VAT and LLP-PVC "
        "take a set a step, which is about a batch of the others: ten steps a round in each row. "
        "The rows with all labels have no rank: one is a network after as many rounds, the other "
        "the closed form from labels in place of class shares. With two classes at a client the "
        "class shares of its sets have rank two, and FedUL asks for as many sets of different "
        "shares as classes."
    ),
    unranked=[
        *("all labels", "all labels in closed form"),
        *("FedUL with a last head", "FedUL with heads"),
    ],
    columns=columns,
    search=SEARCH,
    chosen_with={
        "FedUL with a last head": "FedUL",
        "all labels in closed form": "closed form",
    },
)
