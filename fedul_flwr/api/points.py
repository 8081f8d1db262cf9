"""Points in memory, of any usual type, as the images and tables that the rest of the code reads."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.decode import PixelImages, join_blocks
from fedul_flwr.data.local_files import as_points
from fedul_flwr.data.table_vectors import infer_columns
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, refuse_too_wide
from fedul_flwr.data.types import Bytes, Inputs, InputShape
from fedul_flwr.errors import UserError

FORMS = "images (n, h, w), (n, h, w, 1 or 3), or (n, 1 or 3, h, w); vectors (n, d)"


def is_of(value: object, package: str, name: str) -> bool:
    """Whether ``value`` is an instance of class ``name`` of ``package``, which is not imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))


def is_frame(value: object) -> bool:
    """Whether ``value`` is a DataFrame of pandas."""
    return is_of(value, "pandas", "DataFrame")


def as_array(values: Any, what: str = "x") -> NDArray[Any]:
    """``values``, an array, a tensor, a list or a picture, as an array.

    Raises
    ------
    UserError
        If it is none of them, or its parts have different shapes.
    """
    if is_of(values, "torch", "Tensor"):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "toarray"):
        raise UserError(f"{what} is sparse; it must be dense: {what}.toarray().")
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what} must be an array; its parts differ in shape ({error}).") from None


def images_or_vectors(points: Any, what: str = "x") -> NDArray[Any]:
    """Images as uint8 ``(n, h, w, 1 or 3)``, or vectors ``(n, d)``.

    Parameters
    ----------
    points : array or tensor; images as uint8, or as floats in [0, 1]. Channels come last, or before
        height and width as in torch.

    Raises
    ------
    UserError
        For another shape or type, and for floats outside of [0, 1] in images.
    """
    array = as_array(points, what)
    if array.dtype.kind not in "fiub":
        raise UserError(f"{what} holds {array.dtype}; it must hold numbers: {FORMS}.")
    if array.ndim == 2:
        refuse_too_wide(array.shape[1], what)
        return array.astype(np.float64 if array.itemsize > 4 else np.float32)
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or 0 in array.shape[1:]:
        raise UserError(f"{what} has the shape {array.shape}; it must be {FORMS}.")
    channels = (1, 3)
    of_torch = is_of(points, "torch", "Tensor") and as_array(points).ndim == 4
    if array.shape[1] in channels and (of_torch or array.shape[3] not in channels):
        array = array.transpose(0, 2, 3, 1)
    if array.shape[3] not in channels:
        raise UserError(f"{what} has the shape {array.shape}; it must be {FORMS}.")
    return _bytes(array, what)


def _bytes(images: NDArray[Any], what: str) -> Bytes:
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():
        found = images.dtype if images.dtype.kind != "f" else "numbers outside of [0, 1], or NaN"
        raise UserError(f"{what} holds {found}; images must be uint8, or floats in [0, 1].")
    return np.rint(images.astype(np.float64) * 255).astype(np.uint8)


def arrow_table(frame: Any, what: str = "x") -> Any:
    """A DataFrame as an Arrow table, without its index.

    Raises
    ------
    UserError
        If a column holds values of several types.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    frame = frame.rename(columns=str)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UserError(f"{what} cannot be used as a table: {error}.") from None
    return table.replace_schema_metadata(None)


def stored_points(
    points: Any, shape: InputShape | None = None, options: TableOptions = NO_OPTIONS
) -> Inputs:
    """Points as a model stores them: uint8 images ``(n, h, w, c)`` or float32 vectors ``(n, d)``.

    Parameters
    ----------
    points : as for :func:`images_or_vectors`, or a DataFrame.
    shape : of a model's points, to which images are converted; by default their own.
    options : rules for tables, with the columns that the model knows.

    Raises
    ------
    UserError
        If the points are of another kind or width than ``shape``, or cannot be read.
    """
    where = "x"
    opened: PixelImages | Table
    if is_frame(points):
        from fedul_flwr.data.arrow import LABEL_NAMES
        from fedul_flwr.data.table_files import arrow_features, in_memory

        table = arrow_table(points)
        names = [n for n in (options.label, *LABEL_NAMES) if n in table.column_names]
        label = "" if options.trained or not names else names[0]
        opened = arrow_features(in_memory(where, table), options, label)
        if options.columns is None and not options.trained:
            options = replace(options, columns=infer_columns([opened]))
    else:
        array = images_or_vectors(points)
        opened = PixelImages(where, array) if array.ndim == 4 else Table(where, array)
        if shape is None:
            shape = array.shape[1:]
        if len(shape) != array.ndim - 1:
            kinds = {1: "vectors", 3: "images"}
            raise UserError(
                f"x holds {kinds[array.ndim - 1]}; the model takes {kinds[len(shape)]}."
            )
    (found,) = as_points([opened], shape or (1,), options)
    return join_blocks(found, shape or (1,))
