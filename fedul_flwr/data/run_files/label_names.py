"""Sources of labels, and the names of their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PSEUDO_LABELS = "pseudo-labels"
"""Name under which a simulation's clients write a round's pseudo labels, to be scored."""
XCLP, LEFT_OUT, LOCAL_LP, NETWORK = "xclp", "left-out", "local-lp", "network"
"""Sources of the labels in a file: propagation across clients, the same without this client's
labels, propagation within the client, and the model."""

SOURCES = (XCLP, LEFT_OUT, LOCAL_LP, NETWORK)

SOURCE_WORDS = {
    XCLP: "across clients",
    LEFT_OUT: "from others' labels",
    LOCAL_LP: "within each client",
    NETWORK: "by the model itself",
}
"""Their names in figures and tables."""


def scored_sources(scores: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Sources with a score in ``labels.json``, in the order of SOURCES."""
    found = scores.get("sources", {})
    return {name: found[name] for name in SOURCES if "error" in found.get(name, {})}


def file_name(source: str) -> str:
    """Name of the file with the labels of ``source``."""
    return "labels.csv" if source == XCLP else f"labels-{source}.csv"


def pseudo_labels_file(server_round: int) -> str:
    """Name of a client's file with the pseudo labels of one round."""
    return f"{PSEUDO_LABELS}-{server_round}.safetensors"


def count_in_words(count: int, source: str, points: str) -> str:
    """Number and kind of the points on which labels of ``source`` are scored, as text.

    Parameters
    ----------
    points : ``"new"`` or ``"unlabeled"``, as in ``labels.json``.
    """
    return f"all {count:,} points" if _of_all(source, points) else f"{count:,} {points} points"


def source_in_words(source: str, points: str) -> str:
    """Name of ``source``, with its points if they differ from those of the other sources."""
    words = SOURCE_WORDS[source]
    return f"{words} (all points)" if _of_all(source, points) else words


def _of_all(source: str, points: str) -> bool:
    # Without its labels, a client labels all of its points.
    return source == LEFT_OUT and points == "unlabeled"
