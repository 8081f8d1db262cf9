"""FedUL (Lu et al., ICLR 2022), table E.11."""

from collections.abc import Iterator
from itertools import product

from fedul_flwr.experiments.table import Column, Table

from .mnist import QUICK, ROWS, SETTINGS
from .search import SEARCH


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for epochs, batch in product((1, 4, 16), (16, 128, 0)):
        settings = {**SETTINGS, "local-epochs": epochs, "batch-size": batch}
        if quick:
            settings |= {**QUICK, "points-per-client": 2000}
            if epochs > 1 or batch == 16:  # many steps in a round
                settings |= {"num-rounds": 15, "evaluate-every": 5}
        yield Column(f"E={epochs} B={batch or 'all'}", settings, ROWS, clients=5)


PAPER = {
    "test-error": {
        "E=1 B=16": {"FedUL": (7.99, 9.83)},
        "E=1 B=128": {"FedUL": (2.93, 1.20)},
        "E=1 B=all": {"FedUL": (3.69, 0.88)},
        "E=4 B=16": {"FedUL": (2.54, 1.09)},
        "E=4 B=128": {"FedUL": (4.16, 3.44)},
        "E=4 B=all": {"FedUL": (2.81, 0.37)},
        "E=16 B=16": {"FedUL": (2.92, 1.12)},
        "E=16 B=128": {"FedUL": (3.51, 1.88)},
        "E=16 B=all": {"FedUL": (2.88, 1.06)},
    },
}

TABLE = Table(
    title="Local epochs E and batch size B, MNIST Non-IID, M = 10",
    source="FedUL (Lu et al., ICLR 2022), table E.11",
    measures=["test-error"],
    columns=columns,
    paper=PAPER,
    search=SEARCH,
)
