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


PSEUDO_LABELS = "pseudo-labels"
"""Name under which a simulation's clients leave what they trained on in a round, to be scored."""


def pseudo_labels_file(server_round: int) -> str:
    """Name of a client's file with the pseudo labels of one round."""
    return f"{PSEUDO_LABELS}-{server_round}.safetensors"


def count_in_words(count: int, source: str, points: str) -> str:
    """How many points the labels of ``source`` are scored on, and which.

    Parameters
    ----------
    points : ``"new"`` or ``"unlabeled"``, as in ``labels.json``.
    """
    return f"all {count:,} points" if _of_all(source, points) else f"{count:,} {points} points"


def source_in_words(source: str, points: str) -> str:
    """The words for ``source``, with its points where they are others than those of the rest."""
    words = SOURCE_WORDS[source]
    return f"{words} (all points)" if _of_all(source, points) else words


def _of_all(source: str, points: str) -> bool:
    # A client without its labels is asked for all of its points.
    return source == LEFT_OUT and points == "unlabeled"
