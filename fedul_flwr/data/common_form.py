"""The form that both splits of a data set have in common: shape of points, columns, classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedul_flwr.data.columns import Columns
from fedul_flwr.data.decode import Images
from fedul_flwr.data.formats import Split
from fedul_flwr.data.table_vectors import encode, fit, infer_columns
from fedul_flwr.data.tables import Table, TableOptions, VectorPoints
from fedul_flwr.data.texts import Texts
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError

Points = Images | VectorPoints | Texts
"""Points that can be written in blocks of one shape."""


def same_form(
    train: Split, test: Split, image_size: int, options: TableOptions
) -> tuple[InputShape, Columns | None, tuple[Points, Points]]:
    """Shape of the points of both splits, the columns of tables, and the points to write.

    What fills missing values of tables comes from the training split alone.

    Raises
    ------
    UserError
        If a split is empty, or the splits are not alike.
    """
    one, other = train.inputs, test.inputs
    for inputs in (one, other):
        if len(inputs) == 0:
            what = "rows" if isinstance(inputs, Table | Texts) else "images"
            raise UserError(f"{inputs.where} holds no {what}; each split needs one or more.")
    if isinstance(one, Texts) and isinstance(other, Texts):
        return (), None, (one, other)
    assert not isinstance(one, Texts)  # both are read with the same options
    assert not isinstance(other, Texts)
    if isinstance(one, Table) and isinstance(other, Table):
        columns = options.columns or infer_columns([one, other])
        columns = fit([one], columns, options.missing)
        vectors = encode([one, other], columns)
        is_known = one.names or options.columns or options.missing != "refuse"
        known = columns if is_known else None
        return (len(columns.features),), known, (vectors[0], vectors[1])
    if isinstance(one, Table) or isinstance(other, Table):
        raise UserError(f"{one.where} and {other.where} hold images and vectors; only one of them.")
    shapes = [_image_shape(images, image_size) for images in (one, other)]
    if shapes[0] != shapes[1]:
        shown = ["x".join(map(str, shape)) for shape in shapes]
        raise UserError(
            f"The images of {one.where} are {shown[0]} and those of {other.where} "
            f"{shown[1]} (height x width x channels); both splits must be alike."
        )
    return shapes[0], None, (one, other)


def _image_shape(images: Images, image_size: int) -> InputShape:
    survey = images.survey()
    if image_size:
        return (image_size, image_size, survey.channels)
    return survey.shape(images.where)


def same_classes(train: Split, test: Split) -> tuple[Split, Split, tuple[str, ...]]:
    """Both splits with labels that number the classes of both, and the names of these.

    Raises
    ------
    UserError
        If the splits have other classes, or labels that are none.
    """
    if train.sorted_names and test.sorted_names:
        both = tuple(sorted({*(train.class_names or ()), *(test.class_names or ())}))
        train, test = _renumbered(train, both), _renumbered(test, both)
    one, other = train.class_names, test.class_names
    if train.sorted_names != test.sorted_names and None in (one, other):
        raise UserError(
            f"One of {train.inputs.where} and {test.inputs.where} has texts as labels and the "
            "other numbers; both must have the same."
        )
    if one is not None and other is not None and one != other:
        raise UserError(
            f"The classes of {train.inputs.where} ({', '.join(one)}) and {test.inputs.where} "
            f"({', '.join(other)}) differ; both splits must have the same, in the same order."
        )
    top = max(int(split.labels.max(initial=-1)) for split in (train, test))
    names = one or other or tuple(map(str, range(top + 1)))
    if not names:
        raise UserError(
            f"{train.inputs.where} and {test.inputs.where} hold no label but -1; the test split "
            "needs labels."
        )
    for split in (train, test):
        worst = int(split.labels.max(initial=-1))
        if worst >= len(names):
            raise UserError(
                f"{split.inputs.where} holds the label {worst}; allowed are 0 to "
                f"{len(names) - 1}, one per class, and -1 for an unlabeled point."
            )
    return train, test, names


def _renumbered(split: Split, names: tuple[str, ...]) -> Split:
    """The split with labels that are positions in ``names``."""
    places = [names.index(name) for name in split.class_names or ()]
    # The last entry is for -1.
    return replace(split, labels=np.array([*places, -1])[split.labels], class_names=names)
