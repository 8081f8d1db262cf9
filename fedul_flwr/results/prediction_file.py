"""Predictions as a CSV file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.class_priors import parse_prior
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.class_priors import reweigh
from fedul_flwr.data.csv_cells import write_cell
from fedul_flwr.data.decode import Survey, join_blocks
from fedul_flwr.data.local_data import open_points
from fedul_flwr.data.local_files import as_points
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.tables import Table, reading_notes
from fedul_flwr.data.texts import Texts
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.federated.blame import printable
from fedul_flwr.results.predict import Predictor, load_model

ESTIMATE = "estimate"
NAME = "name"
"""First column of the CSV where no column of the table has identifiers."""


def write_predictions(
    model: Path,
    input_path: Path,
    output: Path | None = None,
    batch_size: int = 256,
    priors: str | None = None,
    *,
    id_column: str = "",
    trust_modules: bool = False,
) -> Path:
    """Label the points at ``input_path`` with a trained model, and write a CSV file.

    Parameters
    ----------
    model : output directory of a run, or a file that ``fedul-flwr pack`` wrote.
    input_path : an image, a folder of images, a ``.parquet`` or an ``.npz`` file; for vectors a
        ``.parquet``, ``.npz`` or ``.csv`` file.
    output : the CSV to write, by default ``<input>-predictions.csv`` in the working directory.
        An existing one is replaced only after all predictions succeeded.
    batch_size : number of points that the model processes at once.
    priors : class priors of these points, by which probabilities are re-weighed: K numbers
        separated by commas, or ``estimate`` to estimate them from the points and print them.
    id_column : column of a table whose texts name the points in the CSV; it is no feature.
    trust_modules : see :func:`~fedul_flwr.results.predict.load_model`.

    Returns
    -------
    The CSV: ``name,label,class,confidence,p_<class>…``, one line per point; confidence is the
    probability of the label. With ``id_column`` the first column has its name.

    Raises
    ------
    UserError
        If there is no usable model, points are missing or unreadable, priors do not fit the model,
        the identifiers cannot be used, or the output cannot be written.
    """
    if output is None:
        # The folder "." has no name until it is resolved.
        source = user_path(input_path)
        stem = source.name if source.is_dir() else source.stem
        output = Path(f"{stem or 'images'}-predictions.csv")
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(f"Cannot write {output}: it must be a file in an existing directory.")
    predictor = load_model(model, trust_modules=trust_modules)
    wanted = _parse_priors(priors, predictor)
    shape = predictor.input_shape
    header = _header(id_column or NAME, predictor.class_names)
    names, opened = open_points(input_path, shape, predictor.table, id_column)
    for note in reading_notes([opened]):
        print(f"Note: {note}.", file=sys.stderr)
    if not isinstance(opened, Table | Texts):
        for note in _differences(opened.survey(), shape):
            print(f"Note: {note}", file=sys.stderr)
    (points,) = as_points([opened], shape, predictor.table)
    inputs = join_blocks(points, shape)
    probabilities = predictor.predict_proba(inputs, batch_size, wanted)
    if priors == ESTIMATE:
        found = predictor.estimate_priors(probabilities)
        probabilities = reweigh(probabilities, predictor.trained_priors(), found)
        shares = zip(predictor.class_names, found, strict=True)
        # Names come from a run's folder, and a terminal obeys control characters.
        print(
            "Estimated class priors: "
            + ", ".join(f"{printable(name)} {share:.4f}" for name, share in shares)
        )
    write_atomically(output, _table(header, names, probabilities, predictor.class_names))
    return output


def _header(first: str, classes: tuple[str, ...]) -> list[str]:
    rest = ["label", "class", "confidence", *(f"p_{name}" for name in classes)]
    if first in rest:
        raise UserError(
            f"--id-column {first!r} is the name of a column of predictions: rename it in the table."
        )
    return [write_cell(first), *rest]


def _differences(survey: Survey, shape: InputShape) -> Iterator[str]:
    """Sentences about images of another form than the model was trained on."""
    height, width, channels = shape
    others = [size for size in survey.sizes if size != (height, width)]
    if others:
        (high, wide), more = others[0], f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield (
            f"images of {high} x {wide} pixels{more} are resized to {height} x {width}, which the "
            "model was trained on."
        )
    if survey.channels != channels:
        kinds = {1: "gray", 3: "RGB"}
        yield (
            f"{kinds[survey.channels]} images are converted to {kinds.get(channels, channels)}, "
            "which the model was trained on."
        )


def _table(
    header: list[str],
    names: list[str],
    probabilities: NDArray[np.float64],
    classes: tuple[str, ...],
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for name, row in zip(names, probabilities, strict=True):
        label = int(row.argmax())
        numbers = (f"{value:.6g}" for value in (row[label], *row))
        writer.writerow([write_cell(name), label, write_cell(classes[label]), *numbers])
    return text.getvalue()


def _parse_priors(text: str | None, predictor: Predictor) -> NDArray[np.float64] | None:
    """Priors given as numbers; ``None`` for none, or if they are to be estimated later."""
    if text is None:
        return None
    if text == ESTIMATE:
        predictor.trained_priors()  # fail before the work, not after it
        return None
    try:
        numbers = parse_prior(text, (ESTIMATE,))
    except ValueError as error:
        raise UserError(f"Option --priors = {text!r}: {error}.") from None
    return predictor.checked_priors(numbers)
