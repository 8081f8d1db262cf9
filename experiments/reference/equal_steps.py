"""Settings of ours, the same for all methods: labels at every client, equal numbers of steps."""

from collections.abc import Iterator
from dataclasses import replace

from fedul_flwr.experiments.table import Column

from . import clients
from .protocol import FEATURES

STEPS = 30
"""Of a client in a round: ten epochs over 25 labels, three over 500 points in batches of 60."""


def columns(quick: bool) -> Iterator[Column]:
    """The columns of features, where many steps cost little."""
    for column in clients.columns(quick):
        if column.name.startswith(FEATURES):
            shared = {key: value for key, value in column.settings.items() if key != "local-epochs"}
            rows = {row: own for row, own in column.rows.items() if row not in ("AFL", "GH-OFL")}
            yield replace(column, settings={**shared, "local-steps": STEPS}, rows=rows)


TABLE = replace(
    clients.TABLE,
    title="Reference: labels for some points of every client, equal steps",
    measures=["test-error", "last-error", "steps", "seconds", "megabytes"],
    note=(
        "50 labels a client, quick 25. Every client makes 30 steps a round, whatever the method: "
        "FedMatch so many for each of its two parts, the closed form none. Methods in two stages "
        "spend half of their rounds on labels alone. The row with all labels is a bound and has "
        "no rank."
    ),
    columns=columns,
)
