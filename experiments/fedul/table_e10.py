"""FedUL (Lu et al., ICLR 2022), table E.10 and figure 3 (b)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .mnist import QUICK, ROWS, SETTINGS
from .search import SEARCH


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for clients in (10, 20, 30, 40, 50):
        settings = {**SETTINGS, "points-per-client": 500}
        if quick:
            settings |= QUICK
        yield Column(f"{clients // 2}k points", settings, ROWS, clients)


PAPER = {
    "test-error": {
        "5k points": {"FedUL": (3.56, 0.09)},
        "10k points": {"FedUL": (2.62, 0.07)},
        "15k points": {"FedUL": (1.97, 0.38)},
        "20k points": {"FedUL": (1.75, 0.11)},
        "25k points": {"FedUL": (1.72, 0.13)},
    },
}

TABLE = Table(
    title="Clients of 500 points, MNIST Non-IID",
    source="FedUL (Lu et al., ICLR 2022), table E.10 and figure 3 (b)",
    measures=["test-error"],
    note="The paper does not give M; 10 is ours.",
    columns=columns,
    paper=PAPER,
    search=SEARCH,
)
