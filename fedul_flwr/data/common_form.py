"""The form that both splits of a data set have in common: shape of points, columns, classes."""

from __future__ import annotations

from dataclasses import replace

from fedul_flwr.data.class_labels import ClassLabels, spelling, union
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.decode import Images
from fedul_flwr.data.encode import encode, fit, infer_columns
from fedul_flwr.data.formats import Split
from fedul_flwr.data.tables import Table, TableOptions, Texts, VectorPoints
from fedul_flwr.data.types import UNLABELED, InputShape
from fedul_flwr.errors import UserError

Points = Images | VectorPoints | Texts
"""Points that can be written in blocks of one shape."""


CommonForm = tuple[InputShape, Columns | None, int, tuple[Points, Points]]
"""What both splits have in common: the shape of every point; the columns of tables, if they are
known; the bits of the values in 16-bit images, or 0; and the training and the test points, to be
written."""


def same_form(train: Split, test: Split, image_size: int, options: TableOptions) -> CommonForm:
    """Find the form of the points of both splits.

    What fills missing values of tables comes from the training split alone, which also says how
    many bits the values of 16-bit images have unless the options do. Images of both have color if
    any has.
    """
    one, other = train.inputs, test.inputs
    for inputs in (one, other):
        if len(inputs) == 0:
            what = "rows" if isinstance(inputs, Table | Texts) else "images"
            raise UserError(
                f"{inputs.where} holds no {what}; each split needs one or more.", "points-missing"
            )
    if isinstance(one, Texts) and isinstance(other, Texts):
        return (), None, 0, (one, other)
    assert not isinstance(one, Texts)  # both are read with the same options
    assert not isinstance(other, Texts)
    if isinstance(one, Table) and isinstance(other, Table):
        columns = options.columns or infer_columns([one, other])
        columns = fit([one], columns, options.missing)
        vectors = encode([one, other], columns)
        is_known = one.names or options.columns or options.missing != "refuse"
        shared = columns if is_known else None
        return (len(columns.features),), shared, 0, (vectors[0], vectors[1])
    if isinstance(one, Table) or isinstance(other, Table):
        raise UserError(
            f"{one.where} and {other.where} hold images and vectors; only one of them.",
            "splits-differ",
        )
    read = [inputs.read_with(options.bits, options.window) for inputs in (one, other)]
    return _form_of_images(read[0], read[1], image_size, options)


def _form_of_images(
    train: Images, test: Images, image_size: int, options: TableOptions
) -> CommonForm:
    surveys = [train.survey(), test.survey()]
    channels = max(survey.channels for survey in surveys)
    shapes = [(image_size, image_size, channels)] * 2
    if not image_size:
        pairs = zip(surveys, (train, test), strict=True)
        shapes = [(*survey.size(images.where), channels) for survey, images in pairs]
    if shapes[0] != shapes[1]:
        shown = ["x".join(map(str, shape[:2])) for shape in shapes]
        raise UserError(
            f"The images of {train.where} are {shown[0]} and those of {test.where} "
            f"{shown[1]} (height x width): set image-size to resize all to so many pixels, as in "
            "image-size = 32.",
            "image-size",
        )
    bits = options.bits or surveys[0].bits(train.where)
    how = bits, options.window
    return shapes[0], None, bits, (train.read_with(*how), test.read_with(*how))


def same_classes(train: Split, test: Split) -> tuple[Split, Split, tuple[str, ...]]:
    """Both splits with labels that number the classes of both, and the names of these."""
    splits = (train, test)
    listed = {split.labels.names for split in splits if split.labels.kind == "name"}
    if len(listed) > 1:
        raise UserError(
            f"The classes of {train.inputs.where} ({', '.join(train.labels.names)}) and "
            f"{test.inputs.where} ({', '.join(test.labels.names)}) differ; both splits must have "
            "the same, in the same order.",
            "splits-differ",
        )
    if listed:
        [names] = listed
        one, other = (
            split.labels
            if split.labels.kind == "name"
            else split.labels.numbered_by(names, split.inputs.where)
            for split in splits
        )
    else:
        one, other = union(train.labels, test.labels)
    where = f"{train.inputs.where} and {test.inputs.where}"
    if not one.names:
        raise UserError(
            f"{where} hold no label but -1; the test split needs labels.", "labels-missing"
        )
    if len(one.names) < 2 and not listed:
        without = any((labels.numbers == UNLABELED).any() for labels in (one, other))
        rest = "; the label -1 means that a point has none" if without else ""
        raise UserError(
            f"{where} hold one class, {one.names[0]}; two or more are needed{rest}.",
            "number-of-classes",
        )
    _refuse_other_spelling(one, other, where)
    return replace(train, labels=one), replace(test, labels=other), one.names


def _refuse_other_spelling(one: ClassLabels, other: ClassLabels, where: str) -> None:
    """Refuse splits that write one class in two ways, or that have other kinds of classes."""
    only_one, only_other = one.used - other.used, other.used - one.used
    kinds = {labels.kind for labels in (one, other) if labels.used} - {"name"}
    if len(kinds) > 1 and not one.used & other.used:
        raise UserError(
            f"One of {where} has {one.kind}s as labels and the other {other.kind}s; both must have "
            "the same.",
            "splits-differ",
        )
    # Some programs write 01 as 1.
    spellings = {spelling(name).lstrip("0"): name for name in sorted(only_one)}
    for name in sorted(only_other):
        if (same := spellings.get(spelling(name).lstrip("0"))) is not None:
            raise UserError(
                f"{where} write a class in two ways, {same!r} and {name!r}; both splits must write "
                "it alike.",
                "class-names-wrong",
            )
