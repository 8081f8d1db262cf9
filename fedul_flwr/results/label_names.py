"""Where labels come from, and the names of their files."""

from __future__ import annotations

XCLP, LEFT_OUT, PERCLIENT_LP, NETWORK = "xclp", "left-out", "perclient-lp", "network"
"""Whose labels a file holds: of the propagation across clients, of that without this client's
labels, of one within the client, of the model itself."""

SOURCES = (XCLP, LEFT_OUT, PERCLIENT_LP, NETWORK)


def file_name(source: str) -> str:
    """Name of the file with the labels of ``source``."""
    return "labels.csv" if source == XCLP else f"labels-{source}.csv"
