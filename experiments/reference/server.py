"""Settings of ours, the same for all methods: Reference: labels at the server alone."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

from fedul_flwr.experiments.table import Column, Table

from .protocol import FEATURES, XRAYS, cells
from .search import SEARCH

# Both numbers of labels have the same split.
SETTINGS = {
    "method": "fixmatch",
    "scenario.labels-at": "server",
    "server-fraction": 0.01,
    "server.epochs": 5,
    "server.when": "after",
    "batch-size": 10,
    "ssl.unlabeled-batch-size": 50,
    "ssl.supervised-weight": 1.0,
    "views.weak": True,
    "fedul.num-sets": 10,
}
ROWS = {
    # Nothing comes before or after the server here.
    "labels alone": {"method": "given-labels", "server.when": "auto"},
    "FixMatch": {},
    "UDA": {"method": "uda"},
    # Its paper's weight of labels, and so a tenth of the step.
    "FedMatch": {"method": "fedmatch", "ssl.supervised-weight": 10.0, "learning-rate": 0.003},
    "SemiFL": {"method": "semifl", "base": "fedavgm", "fedavgm.server-momentum": 0.5},
    "SemiFL with alignment": {
        "method": "semifl",
        "base": "fedavgm",
        "fedavgm.server-momentum": 0.5,
        "semifl.alignment": True,
    },
    "FedUL with fine-tuning": {"method": "fedul-finetune", "batch-size": 50},
    "FedUL with mixing": {"method": "fedul-mix", "batch-size": 50},
    # A head from the server's labels, in the second of two rounds.
    "closed form": {
        "method": "given-labels",
        "server.when": "auto",
        "head": "closed-form",
        "num-rounds": 2,
        "evaluate-every": 1,
    },
    "all labels": {"method": "supervised", "batch-size": 50},
    "(FL)²": {
        "method": "semifl",
        "base": "fedavgm",
        "fedavgm.server-momentum": 0.5,
        "semifl.threshold": "adaptive",
        "semifl.mix-weight": 0.0,
        "semifl.learning-status": True,
        "semifl.sharpness": 0.1,
        "ssl.operations": 3,
    },
    "(FL)² with alignment": {
        "method": "semifl",
        "base": "fedavgm",
        "fedavgm.server-momentum": 0.5,
        "semifl.threshold": "adaptive",
        "semifl.mix-weight": 0.0,
        "semifl.learning-status": True,
        "semifl.sharpness": 0.1,
        "semifl.alignment": True,
        "ssl.operations": 3,
    },
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for (data, split, shared, clients), labels in product(cells(quick), (40, 250)):
        settings, rows = {**SETTINGS, **shared, "server.points": labels}, deepcopy(ROWS)
        if data == XRAYS:
            settings |= {"server-fraction": 0.3, "fedul.num-sets": 6}
        rows["closed form"]["model"] = "linear" if data == FEATURES else "random-features"
        if data == FEATURES:  # RandAugment is for images; 6 is the default
            rows["(FL)²"]["ssl.operations"] = 6
            rows["(FL)² with alignment"]["ssl.operations"] = 6
        yield Column(f"{data} {split} {labels} labels", settings, rows, clients)


TABLE = Table(
    title="Reference: labels at the server alone",
    source="Settings of ours, the same for all methods",
    measures=["test-error", "last-error", "seconds", "megabytes"],
    note=(
        "The server trains after the clients in every row, and its model is judged then. The "
        "rows of FedUL know the class shares of the clients' sets besides, and the row with all "
        "labels those labels: they have no rank. A client's epoch is a pass over its points in "
        "every row, in steps of 50 points; SemiFL and (FL)² take ten of the points that they are "
        "sure of a step, so they make from none to five times as many."
    ),
    unranked=["FedUL with fine-tuning", "FedUL with mixing", "all labels"],
    columns=columns,
    search=SEARCH,
)
