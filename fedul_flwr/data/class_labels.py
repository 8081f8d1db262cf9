"""Labels of any origin as numbers of classes: what is no label, and which classes there are.

Files, frames, arrays and data sets all come here with the values as they hold them. A missing
value is no label before anything becomes text. The classes are the values that occur: whole numbers
in their order (10, 20 and 30 are three classes), texts sorted, and truth values. Other values are
refused.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.errors import UserError

MAX_CLASSES = 65_536

Kind = Literal["number", "truth value", "text", "name", ""]
"""What the classes of labels are; ``"name"`` if the data set lists them itself, empty if no point
has a label."""

_INT64_DIGITS = 18
_NUMBERS = (int, float, Decimal)
_NO_LABEL = {"", "-1", "-1.0", "nan", "NaN", "-nan", "<NA>", "NaT"}
"""Texts that programs write for a missing value."""
_UNCLEAR = {"None", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "?"}
"""Texts that mean a missing value in some files and a class in others."""
_NO_WIDTH = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
"""Characters without width, which copying from web pages leaves in texts."""
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_ALLOWED = "labels are texts, whole numbers from 0 or truth values; -1 and missing ones are none"


@dataclass(frozen=True)
class ClassLabels:
    """Labels as numbers of classes.

    Attributes
    ----------
    numbers : int64 ``(n,)``, positions in ``names``; -1 for a point without a label.
    """

    numbers: Ints
    names: tuple[str, ...]
    kind: Kind = "name"

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def used(self) -> set[str]:
        """Names of the classes that occur."""
        return {self.names[k] for k in np.unique(self.numbers) if k != UNLABELED}

    def cells(self) -> NDArray[Any]:
        """``(n,)``, the values themselves: whole numbers with -1, or texts with empty ones.

        Numbers beyond int64 are texts, too.
        """
        if self.kind in ("number", "") and all(len(name) <= _INT64_DIGITS for name in self.names):
            values = np.array([*map(int, self.names), UNLABELED], dtype=np.int64)
        else:
            values = np.array([*self.names, ""], dtype=str)
        return np.asarray(values[self.numbers])

    def numbered_by(self, names: tuple[str, ...], where: str) -> ClassLabels:
        """The same labels by classes that are listed: texts are their names, numbers positions."""
        if self.kind == "name" and self.names == names:
            return self
        positions = {name: index for index, name in enumerate(names)}
        if self.kind == "number":
            positions = {str(index): index for index in range(len(names))}
        for name in self.names:
            if name in positions:
                continue
            if self.kind == "number":
                allowed = f"0 to {len(names) - 1}, one per class, and -1 for an unlabeled point"
            else:
                allowed = ", ".join(names[:20])
            raise UserError(
                f"{where} holds the label {name}; allowed are {allowed}.", "label-unknown"
            )
        return self._moved(positions, names, "name")

    def _moved(self, to: Mapping[str, int], names: tuple[str, ...], kind: Kind) -> ClassLabels:
        numbers = np.array([*(to[name] for name in self.names), UNLABELED], dtype=np.int64)
        return ClassLabels(numbers[self.numbers], names, kind)


def class_labels(values: Any, where: str, count: int | None = None) -> ClassLabels:
    """Labels of points from the values that stand for them.

    Parameters
    ----------
    values : ``(n,)`` or ``(n, 1)``: an array, list, tensor, or a column of pandas or Arrow.

    Examples
    --------
    >>> found = class_labels(["dog", "cat", None, "dog"], "y")
    >>> found.numbers.tolist(), found.names
    ([1, 0, -1, 1], ('cat', 'dog'))
    """
    codes, distinct = distinct_values(values, where, count)
    return _named(codes, [_kind_and_name(value, where) for value in distinct], where)


def labels_of_cells(texts: Any, where: str) -> ClassLabels:
    """Labels from cells of a file without types, such as CSV, as a column of texts of Arrow.

    They are whole numbers if all are written as such, with or without ``.0``. Else they are texts:
    01 is a text and not 1.
    """
    codes, distinct = distinct_values(texts, where)
    texts_found = [class_text(cell or "") for cell in distinct]
    cells = [None if text in _NO_LABEL else text for text in texts_found]
    are_numbers = all(_NUMBER.fullmatch(cell) for cell in cells if cell is not None)
    values = [Decimal(cell) if are_numbers and cell is not None else cell for cell in cells]
    return _named(codes, [_kind_and_name(value, where) for value in values], where)


def class_text(text: str) -> str:
    """A text as the name of a class: what looks alike is alike (Unicode's composed form, single
    spaces, nothing without width).
    """
    return " ".join(unicodedata.normalize("NFC", text).translate(_NO_WIDTH).split())


def refuse_two_spellings(names: Sequence[str], where: str) -> None:
    """Refuse names that write one class in two ways, as ``Cat`` and ``cat``, or ``1`` and ``True``.

    Single characters may differ in case: classes may be letters.
    """
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name if len(name) == 1 and name.isalpha() else spelling(name), name)
        if first != name:
            raise UserError(
                f"{where} writes a class in two ways, {first!r} and {name!r}: write it alike.",
                "class-names-wrong",
            )


def spelling(name: str) -> str:
    """What all spellings of one class have in common."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return {"true": "1", "false": "0"}.get(text, text)


def class_of_cell(cell: str, classes: Mapping[str, int]) -> int | None:
    """The class that a text in an owner's file names, -1 for no label, None if there is no such."""
    text = class_text(cell)
    # Programs write whole numbers beside missing ones as 1.0, and no label as -1.0.
    whole = text.removesuffix(".0") if _NUMBER.fullmatch(text) else text
    for name in (cell, text, whole):
        if name in classes:
            return classes[name]
    return UNLABELED if whole in _NO_LABEL | _UNCLEAR else None


def sorted_classes(names: Collection[str]) -> tuple[str, ...]:
    """Names of classes in order: by their number if all are whole numbers, else as texts."""
    if all(_NUMBER.fullmatch(name) and name.isdigit() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def distinct_values(values: Any, where: str, count: int | None = None) -> tuple[Ints, list[Any]]:
    """Positions ``(n,)`` of points' values among the distinct ones, -1 for a missing one."""
    import pandas as pd
    import pyarrow as pa  # type: ignore[import-untyped]

    if isinstance(values, pa.Array | pa.ChunkedArray):
        codes, distinct = _of_arrow(values, where)
    else:
        objects = _objects(values, where)
        types = set(map(type, objects))
        numbers = [v for v in objects if type(v) in _NUMBERS] if bool in types else []
        if not all(v == UNLABELED or v != v for v in numbers):  # True equals 1
            raise _no_label("number beside truth values", where)
        try:
            codes, uniques = pd.factorize(pd.Series(objects, dtype=object))
        except TypeError:  # values without a hash
            raise _no_label(type(objects[0]).__name__, where) from None
        codes, distinct = codes.astype(np.int64), uniques.tolist()
    if count is not None and len(codes) != count:
        raise UserError(
            f"{where} has {len(codes)} labels for {count} points; one for each.",
            "points-and-labels-differ",
        )
    return codes, distinct


def _of_arrow(column: Any, where: str) -> tuple[Ints, list[Any]]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # Arrow keeps very long texts in several pieces
        column = pa.concat_arrays(column.chunks)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_null(column.type):
        return np.full(len(column), UNLABELED, dtype=np.int64), []
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        raise _no_label(column.type, where)
    encoded = column.dictionary_encode()
    codes = encoded.indices.cast(pa.int64()).fill_null(UNLABELED).to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.to_pylist()


def _objects(values: Any, where: str) -> list[Any]:
    """One object of Python for each point."""
    import pandas as pd

    what = type(values).__name__
    is_other = isinstance(values, str | bytes | Mapping | set | frozenset)
    is_one = not is_other and hasattr(values, "__len__")
    if isinstance(values, pd.DataFrame) and values.shape[1] == 1:
        values = values.iloc[:, 0]
    elif hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
        values = (values.float() if values.dtype.is_floating_point else values).numpy()
    elif isinstance(values, np.ma.MaskedArray):
        gaps = np.ma.getmaskarray(values)
        values = values.data.astype(object)
        values[gaps] = None
    elif not isinstance(values, pd.Series | pd.Index | np.ndarray) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if getattr(values, "ndim", 1) != 1 or hasattr(values, "toarray") or not is_one:
        shape = f" of shape {tuple(values.shape)}" if hasattr(values, "shape") else ""
        raise UserError(
            f"{where} is a {what}{shape}; it must have one value for each point.", "labels-type"
        )
    if hasattr(values, "dtype"):
        values = pd.Series(values).astype(object)
    # Arrays and tensors of one number are this number.
    return [v.item() if hasattr(v, "item") and getattr(v, "ndim", 0) == 0 else v for v in values]


def _kind_and_name(value: Any, where: str) -> tuple[Kind, str]:
    """Kind and name of the class that ``value`` stands for; both empty for no label."""
    import pandas as pd

    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        value = value if "\ufffd" in text else text
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return "", ""
    if isinstance(value, str):
        text = class_text(value)
        if text in _UNCLEAR:
            raise UserError(
                f"{where} holds the text {text!r}, which may be a class or a missing label: leave "
                "the label empty, or give the class another name.",
                "label-unknown",
            )
        return ("", "") if text in _NO_LABEL else ("text", text)
    if isinstance(value, bool | np.bool_):
        return "truth value", str(bool(value))
    if isinstance(value, int | float | Decimal | np.integer | np.floating):
        if not math.isfinite(value) or value != int(value) or value < UNLABELED:
            raise UserError(f"{where} holds the label {value}; {_ALLOWED}.", "labels-wrong")
        return ("", "") if value == UNLABELED else ("number", str(int(value)))
    raise _no_label(type(value).__name__, where)


def _no_label(what: Any, where: str) -> UserError:
    return UserError(f"{where} holds a {what}; {_ALLOWED}.", "labels-type")


def _named(codes: Ints, values: Sequence[tuple[Kind, str]], where: str) -> ClassLabels:
    """Labels by classes in order, from the place of each point in ``values``."""
    kinds = {kind for kind, _ in values if kind}
    if len(kinds) > 1:
        raise _no_label(f"mixture of {' and '.join(f'{kind}s' for kind in sorted(kinds))}", where)
    names = sorted_classes({name for kind, name in values if kind})
    if len(names) > MAX_CLASSES:
        raise UserError(
            f"{where} holds {len(names)} classes; at most {MAX_CLASSES} are allowed.",
            "number-of-classes",
        )
    refuse_two_spellings(names, where)
    number_of = {name: number for number, name in enumerate(names)}
    moved = [number_of[name] if kind else UNLABELED for kind, name in values]
    numbers = np.array([*moved, UNLABELED], dtype=np.int64)[codes]
    return ClassLabels(numbers, names, next(iter(kinds), ""))


def union(one: ClassLabels, other: ClassLabels) -> tuple[ClassLabels, ClassLabels]:
    """Both by the classes of both."""
    names = sorted_classes({*one.names, *other.names})
    numbers = {name: number for number, name in enumerate(names)}
    return one._moved(numbers, names, one.kind), other._moved(numbers, names, other.kind)


def are_written_apart(one: ClassLabels, other: ClassLabels) -> bool:
    """Whether two parts write one class in two ways, or have other kinds of classes and none in
    common."""
    only_one, only_other = one.used - other.used, other.used - one.used
    kinds = {labels.kind for labels in (one, other) if labels.used} - {"name"}
    if len(kinds) > 1 and not one.used & other.used:
        return True
    # Some programs write 01 as 1.
    forms = [{spelling(name).lstrip("0") for name in names} for names in (only_one, only_other)]
    return bool(forms[0] & forms[1])


# Labels and confidences from scores of classes (XCLP, phase 3).


def labels_from_scores(scores: ArrayLike, known_labels: ArrayLike | None = None) -> Propagated:
    """Label and confidence of every point (phase 3).

    The label is the class of the largest score, the first one on ties; the confidence is
    1 - entropy(z / sum z) / log K, and 1 with a single class. A row of zeros, which no label
    reaches, is labeled -1 with confidence 0, as its argmax would be arbitrary.
    """
    from scipy.special import entr

    scores = checked_scores(scores)
    num_classes = scores.shape[1]
    shares = shares_of_rows(scores)
    entropy = entr(shares).sum(axis=1)
    reached = shares.any(axis=1)
    # For uniform rows rounding can make it slightly negative.
    confidence = np.maximum(1 - entropy / np.log(num_classes), 0) if num_classes > 1 else 1.0
    confidence = np.where(reached, confidence, 0.0)
    labels = np.where(reached, shares.argmax(axis=1), UNLABELED)
    if known_labels is not None:
        checked = checked_labels(known_labels)
        if len(checked) != len(labels):
            raise UserError(
                f"{len(checked)} labels do not go with scores of {len(labels)} points",
                "points-and-labels-differ",
            )
        labels = np.where(checked != UNLABELED, checked, labels)
        confidence = np.where(checked != UNLABELED, 1.0, confidence)
    return Propagated(labels.astype(np.int64), confidence)


def checked_labels(labels: ArrayLike) -> Ints:
    """Labels ``(n,)`` as int64; refuses values that are neither a class nor -1."""
    checked = np.asarray(labels)
    if checked.size == 0:
        checked = checked.astype(np.int64)
    if checked.ndim != 1 or checked.dtype.kind not in "iu":
        raise UserError(
            f"labels are {checked.dtype} {checked.shape}; they must be integers, (points,)",
            "labels-type",
        )
    classes: Ints = checked.astype(np.int64)
    if classes.min(initial=UNLABELED) < UNLABELED:
        raise UserError(
            f"label {classes.min()} is neither a class from 0 nor -1 for unlabeled", "labels-wrong"
        )
    return classes


def checked_scores(scores: ArrayLike) -> Floats:
    """Scores ``(n, K)`` as float64; refuses others than finite ones that are not negative."""
    checked = np.asarray(scores, dtype=np.float64)
    if (
        checked.ndim != 2
        or checked.shape[1] == 0
        or not np.isfinite(checked).all()
        or (checked < 0).any()
    ):
        raise UserError(
            "scores must be a matrix (points, classes), finite and not negative", "array-wrong"
        )
    return checked


def shares_of_rows(rows: Floats) -> Floats:
    """Rows divided by their sum; zero rows stay."""
    # Divide by the largest first: a sum of tiny or huge scores could under- or overflow.
    largest = rows.max(axis=1, keepdims=True)
    scaled: Floats = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    total = scaled.sum(axis=1, keepdims=True)
    np.divide(scaled, total, out=scaled, where=total > 0)
    return scaled
