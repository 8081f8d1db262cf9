"""Settings of ours, the same for all methods: Reference: labels for some points of every client."""

from collections.abc import Iterator
from copy import deepcopy

from fedul_flwr.experiments.table import Column, Table

from .protocol import CLOSED_FORM, XRAYS, cells
from .search import SEARCH

SETTINGS = {
    "method": "fixmatch",
    "labels.total": 5000,
    "semi.labels-only-rounds": 400,
    "xclp.secure": "plaintext",
    "batch-size": 10,
    "ssl.unlabeled-batch-size": 50,
    "ssl.supervised-weight": 1.0,
    "views.weak": True,
}
ROWS = {
    "labels alone": {"method": "given-labels"},
    "FixMatch": {},
    "UDA": {"method": "uda"},
    "SAGE": {"method": "sage"},
    # It projects features and rows of the last layer.
    "ProxyFL": {"method": "proxyfl", "model": "wrn28-2+projections"},
    # Its paper's weight of labels, and so a tenth of the step.
    "FedMatch": {"method": "fedmatch", "ssl.supervised-weight": 10.0, "learning-rate": 0.003},
    "XCLP": {"method": "xclp"},
    "local LP": {"method": "local-lp"},
    "network's labels": {"method": "pseudo-label"},
    "FedSem+": {"method": "fedsem"},
    "CBAFed": {"method": "cbafed"},
    # It has two heads.
    "FedSiam": {"method": "fedsiam", "model": "wrn28-2+head"},
    "XCLP with a last head": {"method": "xclp", "head": "closed-form"},
    "closed form": {"method": "closed-form-labels", "num-rounds": 2},
    # With the gamma of its authors' code: there are fewer labels than features.
    "AFL": {"method": "afl", "num-rounds": 1, "afl.gamma": 1.0},
    "GH-OFL": {"method": "gh-ofl", "num-rounds": 1},
    "all labels": {"method": "all-labels", "batch-size": 50},
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for data, split, shared, clients in cells(quick):
        settings, rows = {**SETTINGS, **shared}, deepcopy(ROWS)
        if data == XRAYS:
            settings |= {"labels.total": 75, "semi.labels-only-rounds": 50}
        if quick:
            settings["semi.labels-only-rounds"] = 15
            settings["labels.total"] = 75 if data == XRAYS else 250
        for row in ("closed form", "AFL", "GH-OFL"):
            rows[row] |= CLOSED_FORM[data]
        rows["FedSiam"]["model"] = f"{settings['model']}+head"  # it has two heads
        rows["ProxyFL"]["model"] = f"{settings['model']}+projections"
        yield Column(f"{data} {split}", settings, rows, clients)


TABLE = Table(
    title="Reference: labels for some points of every client",
    source="Settings of ours, the same for all methods",
    measures=["test-error", "last-error", "seconds", "megabytes"],
    note=(
        "50 labels a client, quick 25, and 15 of X-rays. Methods in two stages spend half of "
        "their rounds on labels alone; an epoch of their second stage is a pass over all "
        "points, and one of the others over the labels. So rows make unequal numbers of steps, "
        "and the table ranks no methods: over a quick run on Fashion-MNIST IID a client makes "
        "60 with labels alone, FixMatch, SAGE and ProxyFL, 120 with FedMatch, 735 with XCLP and "
        "1,410 with FedSiam. The row with all labels is a bound and has no rank."
    ),
    unranked=["all labels", "XCLP with a last head"],
    columns=columns,
    search=SEARCH,
    chosen_with={"XCLP with a last head": "XCLP"},
)
