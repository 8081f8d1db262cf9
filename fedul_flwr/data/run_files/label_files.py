"""Files of labels: clients write them, and a simulation reads them to score them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedul_flwr.data.csv_files import csv_text, read_cell, write_cell
from fedul_flwr.data.run_files.parts import LabelScore, LabelScores
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.errors import UserError

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


def scored_sources(scores: LabelScores) -> dict[str, LabelScore]:
    """Sources with a score in ``labels.json``, in the order of SOURCES."""
    sources = {name: scores.sources.get(name, LabelScore()) for name in SOURCES}
    return {name: score for name, score in sources.items() if score.error is not None}


def file_name(source: str) -> str:
    """Name of the file with the labels of ``source``."""
    return "labels.csv" if source == XCLP else f"labels-{source}.csv"


def pseudo_labels_file(server_round: int) -> str:
    """Name of a client's file with the pseudo labels of one round."""
    return f"{PSEUDO_LABELS}-{server_round}.safetensors"


def count_in_words(count: int, source: str, points: str) -> str:
    """Number and kind of the points on which labels of ``source`` are scored, as text."""
    return f"all {count:,} points" if _of_all(source, points) else f"{count:,} {points} points"


def source_in_words(source: str, points: str) -> str:
    """Name of ``source``, with its points if they differ from those of the other sources."""
    words = SOURCE_WORDS[source]
    return f"{words} (all points)" if _of_all(source, points) else words


def _of_all(source: str, points: str) -> bool:
    # Without its labels, a client labels all of its points.
    return source == LEFT_OUT and points == "unlabeled"


HEADER = ("name", "label", "class", "confidence")


def write_labels(
    path: Path, names: Sequence[str], propagated: Propagated, class_names: Sequence[str]
) -> None:
    """Write ``name,label,class,confidence``, one line per point; label -1 has no class."""
    rows: list[Sequence[object]] = [HEADER]
    for name, label, confidence in zip(names, *propagated, strict=True):
        of_class = "" if label == UNLABELED else class_names[label]
        rows.append([write_cell(name), label, write_cell(of_class), f"{confidence:.6g}"])
    write_atomically(path, csv_text(rows))


def read_labels(path: Path) -> tuple[list[str], Propagated]:
    """Names, labels and confidences of a file that :func:`write_labels` wrote."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
        if not rows or tuple(rows[0]) != HEADER:
            raise ValueError
        labels = np.array([int(row[1]) for row in rows[1:]], dtype=np.int64)
        confidence = np.array([float(row[3]) for row in rows[1:]], dtype=np.float64)
    except (OSError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} is no file of labels ({','.join(HEADER)}).", "labels-file-wrong"
        ) from error
    return [read_cell(row[0]) for row in rows[1:]], Propagated(labels, confidence)
