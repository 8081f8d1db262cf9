"""Files of labels: written by clients, and read by a simulation to score them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedul_flwr.data.csv_cells import read_cell, write_cell
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.errors import UserError

HEADER = ("name", "label", "class", "confidence")


def write_labels(
    path: Path, names: Sequence[str], found: Propagated, class_names: Sequence[str]
) -> None:
    """Write ``name,label,class,confidence``, one line per point; label -1 has no class.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for name, label, confidence in zip(names, found.labels, found.confidence, strict=True):
        of_class = "" if label == UNLABELED else class_names[label]
        writer.writerow([write_cell(name), label, write_cell(of_class), f"{confidence:.6g}"])
    write_atomically(path, text.getvalue())


def read_labels(path: Path) -> tuple[list[str], Propagated]:
    """Names, labels and confidences of a file that :func:`write_labels` wrote.

    Raises
    ------
    UserError
        If it is not such a file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
        if not rows or tuple(rows[0]) != HEADER:
            raise ValueError
        labels = np.array([int(row[1]) for row in rows[1:]], dtype=np.int64)
        confidence = np.array([float(row[3]) for row in rows[1:]], dtype=np.float64)
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{path} is no file of labels ({','.join(HEADER)}).") from error
    return [read_cell(row[0]) for row in rows[1:]], Propagated(labels, confidence)
