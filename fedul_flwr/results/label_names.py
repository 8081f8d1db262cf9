"""Where labels come from, and the names of their files."""

from __future__ import annotations

XCLP, LEFT_OUT, PERCLIENT_LP, NETWORK = "xclp", "left-out", "perclient-lp", "network"
"""Whose labels a file holds: of the propagation across clients, of that without this client's
labels, of one within the client, of the model itself."""

SOURCES = (XCLP, LEFT_OUT, PERCLIENT_LP, NETWORK)

SOURCE_WORDS = {
    XCLP: "across clients",
    LEFT_OUT: "from others' labels",
    PERCLIENT_LP: "within each client",
    NETWORK: "by the model itself",
}
"""How pictures and tables call them."""


def file_name(source: str) -> str:
    """Name of the file with the labels of ``source``."""
    return "labels.csv" if source == XCLP else f"labels-{source}.csv"


def count_in_words(count: int, source: str, points: str) -> str:
    """How many points the labels of ``source`` are scored on, and which.

    Parameters
    ----------
    points : ``"new"`` or ``"unlabeled"``, as in ``labels.json``.
    """
    # A client without its labels is asked for all of its points.
    everything = source == LEFT_OUT and points == "unlabeled"
    return f"all {count:,} points" if everything else f"{count:,} {points} points"
