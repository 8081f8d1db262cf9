"""Unlabeled sets in memory with their class priors, as clients' own data of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.api.input_data import (
    class_names_of,
    client_names,
    is_frame,
    rows_of,
    write_rows,
)
from fedul_flwr.config.base import Scalar
from fedul_flwr.data.csv_files import csv_text
from fedul_flwr.data.safe_files import IN_MEMORY, build_by_content
from fedul_flwr.errors import UserError

FEWEST_CLIENTS = 10
"""Clients over which sets are dealt without ``clients``; fewer, if there are fewer sets."""
_OF_LABELS = ("validation-fraction", "server-fraction")
"""Settings for which the server needs labeled points of its own, beside those of the test."""


def settings_of_sets(
    sets: Any, priors: Any, clients: Any, settings: Mapping[str, Scalar], data: Any, test: Any
) -> tuple[dict[str, Scalar], int]:
    """Settings of a run whose clients own these sets, which are written to disk; and their number.

    Parameters
    ----------
    sets : M sets by name or number, each of points as ``x`` of ``data`` is.
    priors : ``(M, K)``, their class priors; columns of a DataFrame are names of classes, and with
        sets by name its rows are those of its index.
    clients : ``(M,)``, the client of each set, any values; or a number of clients, over which they
        are dealt in their order.
    settings : the other settings of the call.
    data, test : labeled points of the server, if it has some.

    Raises
    ------
    UserError
        If the sets, their priors or clients cannot be used.
    """
    if priors is None:
        raise UserError("sets need priors=…, the class priors of each set.", "argument-missing")
    names = [*map(str, sets)] if isinstance(sets, Mapping) else [*map(str, range(len(sets)))]
    points = [*sets.values()] if isinstance(sets, Mapping) else [*sets]
    if not points:
        raise UserError("sets is empty; give one or more.", "too-few-sets")
    classes, rows = _priors(priors, names if isinstance(sets, Mapping) else None, data, test)
    if rows.ndim != 2 or rows.shape != (len(points), len(classes)):
        raise UserError(
            f"priors have the shape {rows.shape}; {len(points)} sets and {len(classes)} classes "
            f"need ({len(points)}, {len(classes)}).",
            "class-priors-wrong",
        )
    owners = _owners(clients, len(points))
    written = [rows_of(of_set, f"set {name}") for of_set, name in zip(points, names, strict=True)]

    def write(folder: Path) -> None:
        for owner in dict.fromkeys(owners):
            owned, lines = folder / owner, []
            owned.mkdir()
            for number in [n for n, one in enumerate(owners) if one == owner]:
                file = write_rows(written[number], owned / f"{number:06}")
                lines.append([file.name, *map(repr, rows[number].tolist())])
            text = csv_text([("set", *classes), *lines])
            (owned / "priors.csv").write_text(text, encoding="utf-8")

    more: dict[str, Scalar] = {"client-data": str(build_by_content(IN_MEMORY, write))}
    if data is None and test is None:
        more |= {"dataset": "none", "class-names": ",".join(classes), **_shape_of(written[0])}
    elif data is None:
        for key in _OF_LABELS:
            if settings.get(key):
                raise UserError(
                    f"Setting {key} = {settings[key]} takes labeled points of the server beside "
                    "those of the test: give data=…, too.",
                    "argument-missing",
                    setting=key,
                )
        more["validation-fraction"] = 0.0
    return more, len({*owners})


def _priors(
    priors: Any, names: Sequence[str] | None, data: Any, test: Any
) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the classes in the order of the run, and a row for each set."""
    labeled = data if data is not None else test
    of_labels = None if labeled is None else class_names_of(labeled)
    if is_frame(priors):
        table = priors.to_pandas() if hasattr(priors, "to_pandas") else priors
        if names is not None:
            index = [*map(str, table.index)]
            if missing := [name for name in names if name not in index]:
                raise UserError(
                    f"priors have no row {missing[0]!r}; their index has the names of sets.",
                    "class-priors-wrong",
                )
            table = table.iloc[[index.index(name) for name in names]]
        columns = [*map(str, table.columns)]
        if of_labels is not None and {*of_labels} != {*columns}:
            raise UserError(
                f"priors have the classes {', '.join(columns)}; the labels are "
                f"{', '.join(of_labels)}.",
                "class-names-wrong",
            )
        order = [columns.index(name) for name in of_labels or columns]
        return [columns[k] for k in order], np.asarray(table, dtype=np.float64)[:, order]
    rows = np.asarray(priors, dtype=np.float64)
    count = rows.shape[1] if rows.ndim == 2 else 0
    return [*of_labels] if of_labels is not None else [*map(str, range(count))], rows


def _owners(clients: Any, num_sets: int) -> list[str]:
    """The client of each set, as a name of a folder; folders are read in the order of names."""
    if clients is None or isinstance(clients, int | np.integer):
        count = min(FEWEST_CLIENTS, num_sets) if clients is None else int(clients)
        if not 1 <= count <= num_sets:
            raise UserError(
                f"clients = {count}: there are {num_sets} sets, one or more each.",
                "number-of-clients",
            )
        parts = np.array_split(np.arange(num_sets), count)
        return [f"{client:06}" for client, part in enumerate(parts) for _ in part]
    names = client_names(clients, num_sets, "sets")
    if names.dtype.kind in "iu":
        return [f"{position:06}" for position in np.unique(names, return_inverse=True)[1]]
    texts = [str(name).strip() for name in names]
    if odd := [text for text in texts if not text or text[0] in "._~" or {*text} & {*"/\\\0"}]:
        raise UserError(
            f"clients has the name {odd[0]!r}: names of clients begin with a letter or a digit, "
            "and have no slash.",
            "clients-of-points",
        )
    return texts


def _shape_of(rows: Any) -> dict[str, Scalar]:
    """The setting for what models take, of a run without a data set."""
    if not isinstance(rows, dict):
        raise UserError(
            "sets are tables or pictures: give test=… or data=…, from which follows what the model "
            "takes.",
            "argument-missing",
        )
    [array] = rows.values()
    return {"input-shape": "x".join(map(str, array.shape[1:]))}
