"""Points in memory, of any usual type, as the images and tables that the rest of the code reads."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from io import BytesIO
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import column_name
from fedul_flwr.data.column_cells import canonical
from fedul_flwr.data.columns import unnamed_columns
from fedul_flwr.data.decode import (
    EncodedImages,
    Images,
    PixelImages,
    as_written,
    join_blocks,
    list_batches,
    readable,
    upright,
)
from fedul_flwr.data.encode import infer_columns
from fedul_flwr.data.formats import as_pixels
from fedul_flwr.data.local_files import as_points
from fedul_flwr.data.tables import (
    NO_OPTIONS,
    Table,
    TableOptions,
    VectorPoints,
    in_memory,
    refuse_too_wide,
)
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError

FORMS = "images (n, h, w), (n, h, w, 1 or 3), or (n, 1 or 3, h, w); vectors (n, d)"

_OF_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
_OF_TIFF = {"I", "F", "I;16B"}
"""Modes of pictures that these formats keep without loss."""


def is_of(value: object, package: str, name: str) -> bool:
    """Whether ``value`` is an instance of class ``name`` of ``package``, which is not imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))


def is_frame(value: object) -> bool:
    """Whether ``value`` is a DataFrame of pandas or polars, or a table of Arrow."""
    is_stream = hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")
    return is_of(value, "pandas", "DataFrame") or is_stream


def as_array(values: Any, what: str = "x") -> NDArray[Any]:
    """``values``, an array, a tensor, a list or a picture, as an array; NaN where it is masked."""
    first = values[0] if isinstance(values, list | tuple) and values else None
    if is_of(first, "torch", "Tensor") or isinstance(first, np.ndarray):
        parts = [as_array(part, what) for part in values]
        shapes = sorted({part.shape for part in parts})
        if len(shapes) > 1:
            raise UserError(
                f"The points of {what} differ in shape ({shapes[0]}, {shapes[1]}); all must be "
                "alike.",
                "points-shape",
            )
        return np.stack(parts)
    if is_of(values, "torch", "Tensor"):
        import torch

        if values.layout != torch.strided or values.is_meta or values.is_quantized:
            raise UserError(
                f"{what} is a tensor without plain numbers; it must be dense.", "data-not-readable"
            )
        values = values.detach().cpu().resolve_conj().resolve_neg()
        # NumPy has no bfloat16.
        narrow = values.is_floating_point() and values.element_size() < 4
        values = (values.float() if narrow else values).numpy()
    elif hasattr(values, "toarray"):
        raise UserError(
            f"{what} is sparse; it must be dense: its method toarray() makes it so.",
            "data-not-readable",
        )
    try:
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise UserError(
            f"{what} must be an array of numbers, all points of one shape.", "data-not-readable"
        ) from None
    return _of_numbers(array) if array.dtype == object else array


def _of_numbers(objects: NDArray[Any]) -> NDArray[Any]:
    """float64 of objects that are numbers or missing; other arrays are unchanged."""
    import pandas as pd

    flat = pd.Series(objects.ravel(), dtype=object)
    missing = flat.isna()
    if not all(isinstance(v, Real | Decimal | np.number | np.bool_) for v in flat[~missing]):
        return objects
    return flat.mask(missing, np.nan).astype(np.float64).to_numpy().reshape(objects.shape)


def are_pictures(points: Any) -> bool:
    """Whether ``points`` is a list of pictures of Pillow."""
    return isinstance(points, list | tuple) and bool(points) and is_picture(points[0])


def is_picture(value: object) -> bool:
    """Whether ``value`` is a picture of Pillow."""
    return is_of(value, "PIL.Image", "Image")


def encoded_pictures(pictures: Sequence[Any], what: str) -> list[bytes]:
    """Pictures of any size and mode as the content of image files, without loss, upright."""
    encoded = []
    for index, picture in enumerate(pictures):
        if not is_picture(picture):
            raise UserError(
                f"{what} holds a {type(picture).__name__} at {index} and pictures elsewhere; all "
                "points must be of one kind.",
                "points-type",
            )
        content = BytesIO()
        with readable(f"picture {index} of {what}"):
            converted = picture if picture.mode in _OF_PNG | _OF_TIFF else picture.convert("RGB")
            converted = upright(as_written(converted), picture)
            if converted.mode in _OF_PNG:
                converted.save(content, "PNG", compress_level=1)
            else:
                converted.save(content, "TIFF")
        encoded.append(content.getvalue())
    return encoded


def images_or_vectors(points: Any, what: str = "x") -> NDArray[Any]:
    """Images as uint8 ``(n, h, w, 1 or 3)``, or vectors ``(n, d)``.

    Parameters
    ----------
    points : array or tensor; images as uint8, or as floats in [0, 1]. Channels come last, or before
        height and width as in torch.
    """
    array = as_array(points, what)
    if array.dtype.kind not in "fiub":
        raise UserError(
            f"{what} holds {array.dtype}; it must hold numbers: {FORMS}.", "points-type"
        )
    if array.ndim == 2:
        refuse_too_wide(array.shape[1], what)
        return array.astype(np.float64 if array.itemsize > 4 else np.float32)
    first = points[0] if isinstance(points, list | tuple) else points
    of_torch = is_of(first, "torch", "Tensor") and array.ndim == 4
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or 0 in array.shape[1:]:
        raise UserError(f"{what} has the shape {array.shape}; it must be {FORMS}.", "points-shape")
    channels = (1, 3)
    if array.shape[1] in channels and (of_torch or array.shape[3] not in channels):
        array = array.transpose(0, 2, 3, 1)
    if array.shape[3] not in channels:
        raise UserError(f"{what} has the shape {array.shape}; it must be {FORMS}.", "points-shape")
    pixels = as_pixels(array)
    if pixels is None:
        got = array.dtype if array.dtype.kind != "f" else "numbers outside of [0, 1], or NaN"
        raise UserError(
            f"{what} holds {got}; images must be uint8, or floats in [0, 1].", "points-type"
        )
    return pixels


def arrow_table(frame: Any, what: str = "x") -> Any:
    """A DataFrame, or a table of Arrow, as an Arrow table without its index; categories are
    dictionaries of texts.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    if is_of(frame, "pandas", "DataFrame"):
        names = [column_name(str(name)) for name in frame.columns]
        columns = [_arrow_column(frame.iloc[:, k], name, what) for k, name in enumerate(names)]
    else:
        table = pa.table(frame)
        names = list(map(column_name, table.column_names))
        columns = [_plain_type(table.column(index)) for index in range(len(names))]
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(
                f"{what} has several columns called {name!r}; give each its own name.", "name-twice"
            )
    return pa.table(dict(zip(names, columns, strict=True)))


def _arrow_column(column: Any, name: str, what: str) -> Any:
    """A column of pandas as an Arrow array, intervals as texts."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(column.dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    if isinstance(column.dtype, pd.PeriodDtype):  # as dates, which no feature may be
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.CategoricalDtype | pd.IntervalDtype):
        texts = column.astype(object).map(str, na_action="ignore").map(canonical, "ignore")
        # A dictionary stays a category where all of its texts are numbers.
        return pa.chunked_array(
            [pa.array(texts, pa.large_string(), from_pandas=True)]
        ).dictionary_encode()
    try:
        return _plain_type(pa.chunked_array([pa.Array.from_pandas(column)]))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if all(isinstance(value, Real | Decimal) for value in column.dropna()):  # beyond int64
            return pa.chunked_array([pa.Array.from_pandas(column.astype(np.float64))])
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise UserError(
            f"Column {name!r} of {what} holds values of the type {' and '.join(kinds)}; a column "
            "must have numbers or texts, and one kind of them.",
            "column-type",
        ) from None


def _plain_type(column: Any) -> Any:
    """A column of Arrow in a usual type: categories of texts, and floats for decimals."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        # Arrow cannot cast dictionaries of every type of texts.
        return pa.chunked_array(
            [part.dictionary.cast(pa.large_string()).take(part.indices) for part in column.chunks],
            pa.large_string(),
        ).dictionary_encode()
    if pa.types.is_decimal(kind):
        kind = pa.float64()
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    return column if kind == column.type else column.cast(kind)


def stored_points(
    points: Any, shape: InputShape | None = None, options: TableOptions = NO_OPTIONS
) -> Inputs:
    """Points as a model stores them: uint8 images ``(n, h, w, c)`` or float32 vectors ``(n, d)``.

    Parameters
    ----------
    points : as for :func:`images_or_vectors`, a DataFrame, or a list of pictures.
    shape : of a model's points, to which images are converted; by default their own, and the
        categories of a DataFrame are those that occur.
    options : rules for tables, with the columns that the model knows.

    Examples
    --------
    >>> stored_points([[1, 2], [3, 4]])[:].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    where = "x"
    opened: Images | Table
    if are_pictures(points):
        items = [(f"picture {n} of x", one) for n, one in enumerate(encoded_pictures(points, "x"))]
        opened = EncodedImages(where, len(items), partial(list_batches, items))
        if shape is None:
            survey = opened.survey()
            shape = (*survey.size(where), survey.channels)
        if len(shape) != 3:
            raise UserError("x holds pictures; the model takes vectors.", "points-shape")
    elif is_frame(points):
        from fedul_flwr.data.table_files import features_of

        table = _named_by_position(arrow_table(points), options, where)
        opened = features_of(in_memory(where, table), options, "")
        if options.columns is None and not options.trained:
            options = replace(options, columns=infer_columns([opened]))
    else:
        array = images_or_vectors(points)
        opened = PixelImages(where, array) if array.ndim == 4 else Table(where, vectors=array)
        if shape is None:
            shape = array.shape[1:]
        if len(shape) != array.ndim - 1:
            kinds = {1: "vectors", 3: "images"}
            raise UserError(
                f"x holds {kinds[array.ndim - 1]}; the model takes {kinds[len(shape)]}.",
                "points-shape",
            )
    (stored,) = as_points([opened], shape or (1,), options)
    if shape is None:
        assert isinstance(stored, VectorPoints)
        shape = stored.values.shape[1:]
    return join_blocks(stored, shape)


def _named_by_position(table: Any, options: TableOptions, where: str) -> Any:
    """A frame for a model of vectors that came without names: its columns count by their place."""
    columns = options.columns
    count = len(columns.columns) if columns else 0
    if not columns or columns.names != unnamed_columns(count).names:
        return table
    if set(table.column_names) == set(columns.names):
        return table
    if table.num_columns != count:
        raise UserError(
            f"{where} has {table.num_columns} columns; the model was trained on vectors of {count} "
            "numbers.",
            "points-shape",
        )
    return table.rename_columns(list(columns.names))
