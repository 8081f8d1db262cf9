"""FedUL (Lu et al., ICLR 2022), table E.9 and figure 3 (a)."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

from .mnist import QUICK, ROWS, SETTINGS
from .search import SEARCH


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for noise in (0.0, 0.2, 0.4, 0.8, 1.6):
        settings = {**SETTINGS, "fedul.prior-noise": noise}
        if quick:
            settings |= {**QUICK, "points-per-client": 2000}
        yield Column(f"epsilon={noise:g}", settings, ROWS, clients=5)


PAPER = {
    "test-error": {
        "epsilon=0": {"FedUL": (2.98, 1.72)},
        "epsilon=0.2": {"FedUL": (3.02, 1.30)},
        "epsilon=0.4": {"FedUL": (3.10, 0.96)},
        "epsilon=0.8": {"FedUL": (3.02, 1.36)},
        "epsilon=1.6": {"FedUL": (3.49, 1.74)},
    },
}

TABLE = Table(
    title="Class priors with noise, MNIST Non-IID, M = 10",
    source="FedUL (Lu et al., ICLR 2022), table E.9 and figure 3 (a)",
    measures=["test-error"],
    columns=columns,
    paper=PAPER,
    search=SEARCH,
)
