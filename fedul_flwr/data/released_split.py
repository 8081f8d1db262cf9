"""Split files of the XCLP authors' code.

A line for each point, four words: the name of its image, its class, the client that holds it or
``server``, and 1 if its label is given, else 0::

    14365_airplane.png airplane 95 0

The authors' scripts number the images of CIFAR-10 and CIFAR-100 in the order of the data set, so
the number in a name is a row of the training data. Each line's class is checked against it. Images
of Mini-ImageNet have names of another form, and a file of theirs is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedul_flwr.data.types import Bools, Ints

SERVER = -1
"""The owner of points that the server holds."""
_NAME = re.compile(r"([0-9]{1,12})_.+")
_PART, _HUB_PARTS = 10_000, (3, 2, 1, 4, 0)
_EXAMPLE = "14365_airplane.png airplane 95 0"


class ReleasedSplit(NamedTuple):
    """Points by ascending row.

    Attributes
    ----------
    points : ``(n,)``, rows of the training data.
    owners : ``(n,)``, number of the client, or :data:`SERVER`.
    labeled : ``(n,)``, whether the label is given.
    """

    points: Ints
    owners: Ints
    labeled: Bools


def read_released_split(
    file: Path, train_labels: Ints, class_names: Sequence[str]
) -> ReleasedSplit:
    """Read a split file of the XCLP authors' code.

    Parameters
    ----------
    train_labels : ``(N,)``, true labels of the training data, -1 for none.
    class_names : names of the classes ``0..K-1``.

    Raises
    ------
    ValueError
        If the file is not of this form, names a point twice, or names points or classes that the
        data set does not have. The message has no line's content.
    """
    points, classes, owners, labeled = _parse(file)
    if points.max(initial=-1) >= len(train_labels):
        raise ValueError(
            f"it names row {points.max()} of the training data, which has {len(train_labels)}"
        )
    rows, counts = np.unique(points, return_counts=True)
    if len(rows) < len(points):
        raise ValueError(f"it names row {rows[counts > 1][0]} more than once")
    numbers = {name: number for number, name in enumerate(class_names)}
    truth = np.array([numbers.get(name, -2) for name in classes], dtype=np.int64)
    for order in _orders(len(train_labels)):
        if np.array_equal(train_labels[order[points]], truth):
            points = order[points]
            break
    else:
        line = int(np.flatnonzero(train_labels[points] != truth)[0]) + 1
        raise ValueError(
            f"line {line} has another class than row {points[line - 1]} of the training data: it "
            "is of other data, or the rows of the data set are in another order"
        )
    ascending = np.argsort(points)
    return ReleasedSplit(points[ascending], owners[ascending], labeled[ascending])


def _parse(file: Path) -> tuple[Ints, list[str], Ints, Bools]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError("it cannot be read as text") from error
    points, classes, owners, labeled = [], [], [], []
    for position, line in enumerate(lines, start=1):
        words = line.split()
        row = _row(words)
        if row is None:
            raise ValueError(
                f"line {position} is not of the form of the XCLP authors' split files, as "
                f"{_EXAMPLE!r}: a row of the training data and a name, class, client or server, "
                "1 or 0"
            )
        points.append(row)
        classes.append(words[1])
        owners.append(SERVER if words[2] == "server" else int(words[2]))
        labeled.append(words[3] == "1")
    return (
        np.array(points, dtype=np.int64),
        classes,
        np.array(owners, dtype=np.int64),
        np.array(labeled, dtype=np.bool_),
    )


def _orders(size: int) -> Iterator[Ints]:
    """Orders that a data set may have its training points in: row by number in the file's names.

    The authors take the five parts of CIFAR-10 in turn. The data set on the Hugging Face hub has
    them as they lie in the archive.
    """
    yield np.arange(size, dtype=np.int64)
    if size == _PART * len(_HUB_PARTS):
        start = np.argsort(_HUB_PARTS) * _PART
        yield np.repeat(start, _PART) + np.tile(np.arange(_PART), len(_HUB_PARTS))


def _row(words: Sequence[str]) -> int | None:
    """The row that a line's image is of; None if the line is not of the form."""
    if len(words) != 4:
        return None
    name, owner, labeled = _NAME.fullmatch(words[0]), words[2], words[3]
    is_client = owner.isascii() and owner.isdigit() and len(owner) <= 9
    if name is None or labeled not in ("0", "1") or not (owner == "server" or is_client):
        return None
    return int(name[1])
