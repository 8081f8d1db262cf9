"""Data sets with a train and a test split, decoded once and then memory-mapped.

A cached source is a folder of ``train_inputs.npy``, ``train_labels.npy``, ``test_inputs.npy``,
``test_labels.npy``, one ``column_<i>.npy`` per further column and ``meta.json``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedul_flwr.config.base import nearest
from fedul_flwr.config.shared import BUILT_IN
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.cache import build_once, cache_directory, cache_key
from fedul_flwr.data.class_labels import ClassLabels, spelling, union
from fedul_flwr.data.columns import Columns, parse_columns
from fedul_flwr.data.decode import Images, PixelImages
from fedul_flwr.data.encode import encode, fit, infer_columns
from fedul_flwr.data.formats import (
    Points,
    Split,
    class_folders,
    find_entry,
    folder_split,
    npz_images,
    npz_split,
)
from fedul_flwr.data.safe_files import open_array, write_blocks
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, Texts, in_memory, reading_notes
from fedul_flwr.data.types import UNLABELED, Bools, InputShape, Ints, PointArrays, Source
from fedul_flwr.errors import UserError

# The form that both splits of a data set have in common: shape of points, columns, classes.

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
    return _form_of_images(one, other, image_size, options.bits)


def _form_of_images(train: Images, test: Images, image_size: int, bits: int) -> CommonForm:
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
    bits = bits or surveys[0].bits(train.where)
    return shapes[0], None, bits, (train.with_bits(bits), test.with_bits(bits))


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


def _read_hub(name: str, options: TableOptions) -> tuple[Split, Split]:
    """Train and test split of a data set on the Hugging Face hub, ``name`` or ``name:config``,
    downloaded if necessary."""
    import datasets

    from fedul_flwr.data.table_files import hub_table, table_split

    repository, _, config = name.partition(":")
    log = logging.getLogger("huggingface_hub")
    level, bars = log.level, datasets.are_progress_bars_disabled()
    log.setLevel(logging.CRITICAL)  # hides a warning for every retry
    datasets.disable_progress_bars()
    try:
        splits = datasets.load_dataset(repository, config or None)
    except Exception as error:  # many types: network, hub, scripts, formats
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"{name!r} is neither a folder here nor a data set that could be loaded from the "
            f"Hugging Face hub ({reason}){nearest(name, (*BUILT_IN, 'none')) or '.'}",
            "data-set-missing",
        ) from error
    finally:
        log.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
    tables = {str(split): hub_table(f"{name} ({split})", data) for split, data in splits.items()}
    for split in ("train", "test"):
        if split not in tables:
            raise UserError(
                f"The data set {name} has no {split} split; it has: {', '.join(tables)}.",
                "data-set-layout",
            )
    return table_split(tables["train"], options), table_split(tables["test"], options)


class NamedDataset(NamedTuple):
    """A data set that ``dataset`` takes by name."""

    name: str
    shape: str
    classes: int
    train: int
    test: int
    needs: str
    hint: str = ""


_HERE = "nothing: it comes with scikit-learn"
_HUB = "network on first use: a download from the Hugging Face hub, about {} MB"

NAMED_DATASETS = (
    NamedDataset("digits", "images 8 x 8, gray", 10, 1438, 359, _HERE),
    NamedDataset("breast-cancer", "vectors of 30 numbers", 2, 456, 113, _HERE),
    NamedDataset("wine", "vectors of 13 numbers", 3, 142, 36, _HERE),
    NamedDataset("ylecun/mnist", "images 28 x 28, gray", 10, 60_000, 10_000, _HUB.format(18)),
    NamedDataset(
        "zalando-datasets/fashion_mnist",
        "images 28 x 28, gray",
        10,
        60_000,
        10_000,
        _HUB.format(36),
    ),
    NamedDataset(
        "uoft-cs/cifar10",
        "images 32 x 32, color",
        10,
        50_000,
        10_000,
        _HUB.format(144),
        "augment=translate-flip",
    ),
)
"""Data sets by what they need, then by size. Tests read each one."""


DEMO_TABLES = ("breast-cancer", "wine")
"""Names of the tables: breast cancer (569 x 30) and wine (178 x 13)."""
_SEED = 1797
_TEST_FRACTION = 0.2


def stratified_test(labels: Ints) -> Bools:
    """``(n,)``, whether a point is in the test split: 20 % of every class, always the same."""
    generator = np.random.default_rng(_SEED)
    in_test = np.zeros(len(labels), dtype=bool)
    for k in range(int(labels.max()) + 1):
        points = generator.permutation(np.flatnonzero(labels == k))
        in_test[points[: round(_TEST_FRACTION * len(points))]] = True
    return in_test


def read_digits() -> tuple[Split, Split]:
    """1,797 digits of 8 x 8 pixels: train (80 %) and test (20 %) split, the same for every run."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    return _demo_splits(
        lambda split, rows: PixelImages(f"digits ({split})", pixels[rows]), labels, range(10)
    )


def read_demo_table(name: str) -> tuple[Split, Split]:
    """Return the train (80 %) and test (20 %) split, stratified, the same for every run."""
    from sklearn import datasets

    load = datasets.load_breast_cancer if name == "breast-cancer" else datasets.load_wine
    demo = load()

    def points(split: str, rows: Bools) -> Table:
        names = map(str, demo.feature_names)
        return in_memory(f"{name} ({split})", dict(zip(names, demo.data[rows].T, strict=True)))

    return _demo_splits(points, demo.target, demo.target_names)


def _demo_splits(
    points: Callable[[str, Bools], PixelImages | Table], labels: Any, classes: Iterable[object]
) -> tuple[Split, Split]:
    labels, names = labels.astype(np.int64), tuple(map(str, classes))
    in_test = stratified_test(labels)
    train, test = (
        Split(points(split, rows), ClassLabels(labels[rows], names))
        for split, rows in (("train", ~in_test), ("test", in_test))
    )
    return train, test


DIGITS = "digits"
"""The handwritten digits that ship with scikit-learn."""

TRAIN_INPUTS = "train_inputs.npy"
"""File with the training points of a decoded data set, the only one that clients open."""
TEST_INPUTS, META = "test_inputs.npy", "meta.json"

_LAYOUTS = (
    "train.parquet and test.parquet, train.npz and test.npz, train.csv and test.csv, or train/ and "
    "test/ with one sub-folder of images per class"
)
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


@dataclass(frozen=True)
class _Origin:
    """Origin of a data set, found without opening large files.

    Attributes
    ----------
    identity : identifies it, together with path, size and time of the ``files``.
    """

    identity: str
    files: Sequence[Path]
    read: Callable[[], tuple[Split, Split]]


def load_source(
    dataset: str,
    *,
    image_size: int = 0,
    table: TableOptions = NO_OPTIONS,
    cache: Path | None = None,
) -> Source:
    """Load a data set; its images are decoded, or its tables encoded, on first use.

    Parameters
    ----------
    dataset : one of

        - ``digits``: scikit-learn's 1797 handwritten digits, 8x8 gray, split once and for all into
          80 % train and 20 % test, stratified;
        - ``breast-cancer`` or ``wine``: scikit-learn's tables of 569 points with 30 numbers and 178
          points with 13, split in the same way;
        - a folder with ``train.parquet`` and ``test.parquet``: images (column ``image`` or
          ``img``), or features: columns of numbers and texts, or one column of lists. Labels are
          a ClassLabel, whole numbers, texts or truth values; missing ones are ``-1``;
        - a folder with ``train.npz`` and ``test.npz``: ``images`` uint8 or float in [0, 1],
          ``(n, h, w)`` or ``(n, h, w, c)``, or ``vectors`` ``(n, d)``; ``labels`` as in parquet;
          perhaps ``class_names``;
        - a folder with ``train.csv`` and ``test.csv``: features and labels as in parquet;
        - a folder with ``train/`` and ``test/``, one sub-folder of images per class;
        - the name of a data set on the Hugging Face hub, ``name`` or ``name:config``.
    """
    return read_source(source_directory(dataset, image_size=image_size, table=table, cache=cache))


def source_directory(
    dataset: str,
    *,
    image_size: int = 0,
    table: TableOptions = NO_OPTIONS,
    cache: Path | None = None,
) -> Path:
    """Return the folder of the decoded data set; decode it first if necessary."""
    origin = _find(dataset, table)
    key = cache_key([origin.identity, image_size, *table.identity], origin.files)
    root = (cache_directory() if cache is None else cache) / "sources"

    def build(directory: Path) -> None:
        _write_source(directory, *origin.read(), image_size, table, origin.identity)

    return build_once(root / key, build)


def read_source(directory: Path) -> Source:
    """Open a decoded data set from the folder that `source_directory` returned."""
    meta = json.loads((directory / META).read_text(encoding="utf-8"))
    train = PointArrays(
        open_array(directory / TRAIN_INPUTS),
        open_array(directory / "train_labels.npy"),
        {name: open_array(directory / file) for name, file in meta["columns"].items()},
    )
    test = PointArrays(
        open_array(directory / TEST_INPUTS), open_array(directory / "test_labels.npy")
    )
    columns = parse_columns(meta["features"]) if meta["features"] else None
    names, notes = tuple(meta["class_names"]), tuple(meta["notes"])
    return Source(train, test, names, columns, notes, meta["bits"])


def _find(dataset: str, options: TableOptions) -> _Origin:
    if dataset == DIGITS:
        return _Origin(DIGITS, (), read_digits)
    if dataset in DEMO_TABLES:
        return _Origin(dataset, (), lambda: read_demo_table(dataset))
    path = user_path(dataset)
    if dataset and not path.exists() and not _looks_like_path(dataset):
        return _Origin(f"hub:{dataset}", (), lambda: _read_hub(dataset, options))
    if not dataset or not path.is_dir():
        raise UserError(
            f"The data set {dataset!r} is no folder; one must hold {_LAYOUTS}.", "data-set-missing"
        )
    return _find_in_folder(path.resolve(), options)


def _looks_like_path(dataset: str) -> bool:
    """Whether ``dataset`` is a path and not a hub name, which often has the form ``owner/name``."""
    if dataset.startswith((".", "/", "~")) or _HUB_NAME.fullmatch(dataset) is None:
        return True
    owner, slash, _ = dataset.partition("/")
    return bool(slash) and Path(owner).is_dir()


def _find_in_folder(root: Path, options: TableOptions) -> _Origin:
    origins = [
        suffix
        for suffix in (".parquet", ".npz", ".csv", "")
        if any(_holds(find_entry(root, f"{split}{suffix}"), suffix) for split in ("train", "test"))
    ]
    if len(origins) != 1:
        raise UserError(
            f"The folder {root} holds {len(origins)} data sets; it must hold one, {_LAYOUTS}.",
            "data-set-layout",
        )
    train, test = (find_entry(root, f"{split}{origins[0]}") for split in ("train", "test"))
    for split, path in (("train", train), ("test", test)):
        if not _holds(path, origins[0]):
            raise UserError(
                f"The data set {root} has no {split} split; {path} is missing.", "data-set-layout"
            )
    if origins[0]:
        return _Origin(
            str(root), (train, test), lambda: (_read(train, options), _read(test, options))
        )
    in_train, in_test = class_folders(train), class_folders(test)
    names = sorted({*in_train, *in_test})
    if not names:
        raise UserError(
            f"The folder {train} has no class folders; one per class is needed.", "data-set-layout"
        )
    files = [f for classes in (in_train, in_test) for images in classes.values() for f in images]
    return _Origin(
        # Include the classes: an empty class folder changes K but has no file.
        json.dumps([str(root), names]),
        files,
        lambda: (folder_split(train, names), folder_split(test, names)),
    )


def _holds(path: Path, suffix: str) -> bool:
    return path.is_file() if suffix else path.is_dir()


def _read(path: Path, options: TableOptions) -> Split:
    from fedul_flwr.data.table_files import (
        has_vectors,
        npz_table,
        open_table,
        refuse_texts_in_npz,
        table_split,
    )

    if path.suffix.lower() == ".npz":
        refuse_texts_in_npz(path, options)
        return npz_split(path, npz_table(path) if has_vectors(path) else npz_images(path))
    return table_split(open_table(path, options), options)


def _write_source(
    directory: Path,
    train: Split,
    test: Split,
    image_size: int,
    options: TableOptions,
    identity: str,
) -> None:
    train, test, names = same_classes(train, test)
    shape, columns, bits, points = same_form(train, test, image_size, options)
    for name, split, inputs in zip(("train", "test"), (train, test), points, strict=True):
        write_blocks(
            directory / f"{name}_inputs.npy",
            (len(inputs), *shape),
            inputs.dtype,
            inputs.blocks(shape),
        )
        np.save(directory / f"{name}_labels.npy", split.labels.numbers, allow_pickle=False)
    # Numbered files, because a column's name may not be a valid file name.
    others = {name: f"column_{index}.npy" for index, name in enumerate(train.columns)}
    for name, file in others.items():
        np.save(directory / file, train.columns[name], allow_pickle=False)
    meta = {
        "class_names": names,
        "columns": others,
        "features": None if columns is None else columns.to_json(),
        "bits": bits,
        "dataset": identity,
        "train": train.inputs.where,
        "test": test.inputs.where,
        "image_size": image_size,
        "notes": reading_notes([train.inputs, test.inputs]),
    }
    text = json.dumps(meta, indent=1, ensure_ascii=False)
    (directory / META).write_text(text, encoding="utf-8")
