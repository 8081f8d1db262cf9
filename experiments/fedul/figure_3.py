"""FedUL (Lu et al., ICLR 2022), figure 3 (c) and (d)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .mnist import QUICK, ROWS, SETTINGS
from .search import SEARCH

ALONE = {
    "E=1": {},  # the settings above
    "E=2": {"local-epochs": 2},
    "E=4": {"local-epochs": 4},
    "E=8": {"local-epochs": 8},
    "E=16": {"local-epochs": 16},
    "B=16": {"batch-size": 16},
    "B=64": {"batch-size": 64},
    "B=128": {},  # the settings above
    "B=512": {"batch-size": 512},
    "B=all": {"batch-size": 0},
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for alone, of_alone in ALONE.items():
        settings = {**SETTINGS, **of_alone}
        if quick:
            settings |= {**QUICK, "points-per-client": 2000}
            if alone in ("E=4", "E=8", "E=16", "B=16"):  # many steps in a round
                settings |= {"num-rounds": 15, "evaluate-every": 5}
        yield Column(alone, settings, ROWS, clients=5)


PAPER = {
    "test-error": {
        "E=1": {"FedUL": (2.93, 1.20)},
        "E=4": {"FedUL": (4.16, 3.44)},
        "E=16": {"FedUL": (3.51, 1.88)},
        "B=16": {"FedUL": (7.99, 9.83)},
        "B=128": {"FedUL": (2.93, 1.20)},
        "B=all": {"FedUL": (3.69, 0.88)},
    },
}

TABLE = Table(
    title="Local epochs or batch size alone, MNIST Non-IID, M = 10",
    source="FedUL (Lu et al., ICLR 2022), figure 3 (c) and (d)",
    measures=["test-error"],
    note="The figure draws more points than table E.11 prints; figures are that table's.",
    columns=columns,
    paper=PAPER,
    search=SEARCH,
)
