"""Data sets with a train and a test split, decoded once and then memory-mapped.

A cached source is a folder of ``train_inputs.npy``, ``train_labels.npy``, ``test_inputs.npy``,
``test_labels.npy``, one ``column_<i>.npy`` per further column and ``meta.json``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedul_flwr.arrays import Bools, Ints
from fedul_flwr.config.base import nearest
from fedul_flwr.config.shared import BUILT_IN
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.class_labels import (
    ClassLabels,
    are_written_apart,
    class_text,
    refuse_two_spellings,
    union,
)
from fedul_flwr.data.columns import Columns, parse_columns, refuse_twice
from fedul_flwr.data.decode import (
    Images,
    PixelImages,
    Survey,
    file_images,
    list_images,
    refuse_shared,
    refuse_unused_range,
)
from fedul_flwr.data.encode import infer_columns
from fedul_flwr.data.headers import unit_files
from fedul_flwr.data.safe_files import (
    build_once,
    cache_directory,
    cache_key,
    find_entry,
    open_array,
    visible,
    write_blocks,
)
from fedul_flwr.data.saying_columns import in_words, left_out, said_by
from fedul_flwr.data.table_files import (
    LabeledSplit,
    Opened,
    Points,
    hub_table,
    npz_split,
    open_table,
    storable,
    table_split,
)
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, in_memory, reading_notes
from fedul_flwr.data.types import InputShape, PointArrays, Source
from fedul_flwr.errors import UserError, require

CommonForm = tuple[InputShape, Columns | None, int, Sequence[Points]]
"""What both splits have in common: the shape of every point; the columns of tables, if they are
known; the bits of the values of images, or 0; and the training and the test points, to be
written."""


def same_form(train: Opened, test: Opened, image_size: int, options: TableOptions) -> CommonForm:
    """Find the form of the points of both splits.

    The training split alone says how many bits the values of images have unless the options
    do. Images of both have color if any has.
    """
    columns, points = storable((train, test), options, training=1)
    if isinstance(train, Table) and columns is not None:
        is_known = train.names or options.columns or options.missing != "refuse"
        return (len(columns.features),), columns if is_known else None, 0, points
    images = [inputs for inputs in points if isinstance(inputs, Images)]
    if not images:
        return (), None, 0, points
    surveys = [inputs.survey() for inputs in images]
    if not image_size:
        merged = Survey(surveys[0].sizes | surveys[1].sizes)
        height, width = merged.size(f"{train.where} and {test.where}")
    else:
        height = width = image_size
    bits = options.bits or surveys[0].bits(train.where)
    channels = max(survey.channels for survey in surveys)
    read = [inputs.read_with(bits, options.window) for inputs in images]
    return (height, width, channels), None, bits, read


def same_classes(train: LabeledSplit, test: LabeledSplit) -> tuple[ClassLabels, ClassLabels]:
    """Labels of both splits that number the classes of both."""
    one, other = train.labels, test.labels
    where = f"{train.inputs.where} and {test.inputs.where}"
    listed = [labels.names for labels in (one, other) if labels.kind == "name"]
    differ = any(names != listed[0] for names in listed)
    if listed and not differ:
        one = one.numbered_by(listed[0], train.inputs.where)
        other = other.numbered_by(listed[0], test.inputs.where)
    elif not listed:
        one, other = union(one, other)
    if differ or are_written_apart(one, other):
        shown = [", ".join(split.labels.names[:20]) for split in (train, test)]
        raise UserError(
            f"The classes of {where} differ ({shown[0]}; {shown[1]}): both must have the same, "
            "written alike and in the same order.",
            "splits-differ",
        )
    if len(one.names) < (1 if listed else 2):
        raise UserError(
            f"{where} hold {len(one.names)} classes ({', '.join(one.names)}); two or more are "
            "needed, and -1 and missing labels are none.",
            "number-of-classes",
        )
    return one, other


def _read_hub(name: str, options: TableOptions) -> tuple[LabeledSplit, LabeledSplit]:
    """Train and test split of a data set on the Hugging Face hub, ``name`` or ``name:config``,
    downloaded if necessary."""
    hint = nearest(name, (*BUILT_IN, "none"))
    alike = f" ({hint[2:]})" if hint else ""
    require("hub", f"{name!r} is no folder here{alike}, and the Hugging Face hub", "datasets")
    import datasets

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
            f"Hugging Face hub ({reason}){hint or '.'}",
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


DIGITS = "digits"
"""The handwritten digits that ship with scikit-learn."""
DEMOS = {DIGITS: "load_digits", "breast-cancer": "load_breast_cancer", "wine": "load_wine"}
"""Data sets that ship with scikit-learn, and its functions: 1,797 images of 8 x 8 pixels, and
tables of 569 x 30 and 178 x 13 numbers."""
_SEED = 1797
_TEST_FRACTION = 0.2


def stratified_test(labels: Ints) -> Bools:
    """``(n,)``, whether a point is in the test split: 20 % of every class, always the same."""
    generator = np.random.default_rng(_SEED)
    in_test = np.zeros(len(labels), dtype=bool)
    for k in range(int(labels.max(initial=-1)) + 1):
        points = generator.permutation(np.flatnonzero(labels == k))
        in_test[points[: round(_TEST_FRACTION * len(points))]] = True
    return in_test


def read_demo(name: str) -> tuple[LabeledSplit, LabeledSplit]:
    """The train (80 %) and test (20 %) split, stratified, the same for every run."""
    from sklearn import datasets

    demo = getattr(datasets, DEMOS[name])()
    labels, classes = demo.target.astype(np.int64), tuple(map(str, demo.target_names))
    in_test = stratified_test(labels)

    def part(split: str, rows: Bools) -> LabeledSplit:
        where, points = f"{name} ({split})", demo.data[rows]
        inputs: Opened
        if name == DIGITS:
            pixels = np.rint(points.reshape(-1, 8, 8, 1) * (255 / 16))
            inputs = PixelImages(where, pixels.astype(np.uint8))
        else:
            columns = zip(map(str, demo.feature_names), points.T, strict=True)
            inputs = in_memory(where, dict(columns))
        return LabeledSplit(inputs, ClassLabels(labels[rows], classes))

    return part("train", ~in_test), part("test", in_test)


TRAIN_INPUTS = "train_inputs.npy"
"""File with the training points of a decoded data set, the only one that clients open."""
TEST_INPUTS, META = "test_inputs.npy", "meta.json"

_LAYOUTS = (
    "train.parquet and test.parquet, train.npz and test.npz, train.csv and test.csv, or train/ and "
    "test/ with one sub-folder of images per class"
)
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


class _Origin(NamedTuple):
    """A data set that was found without opening large files: what identifies it, together with
    path, size and time of its files, and how it is read."""

    identity: str
    files: Sequence[Path]
    read: Callable[[], tuple[LabeledSplit, LabeledSplit]]


def load_source(
    dataset: str,
    *,
    image_size: int = 0,
    table: TableOptions = NO_OPTIONS,
) -> Source:
    """Load a data set; its images are decoded, or its tables encoded, on first use.

    ``dataset`` is one of :data:`DEMOS`; a folder of one of the layouts in docs/running.md and
    docs/vectors.md; or the name of a data set on the Hugging Face hub, ``name`` or ``name:config``.
    """
    return read_source(source_directory(dataset, image_size=image_size, table=table))


def source_directory(
    dataset: str,
    *,
    image_size: int = 0,
    table: TableOptions = NO_OPTIONS,
) -> Path:
    """Return the folder of the decoded data set; decode it first if necessary."""
    origin = _find(dataset, table)
    key = cache_key([origin.identity, image_size, *table.identity], origin.files)
    root = cache_directory() / "sources"

    def build(directory: Path) -> None:
        _write_source(directory, origin.read(), image_size, table, origin.identity)

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
    if dataset in DEMOS:
        return _Origin(dataset, (), lambda: read_demo(dataset))
    path = user_path(dataset)
    if dataset and not path.exists() and not _looks_like_path(dataset):
        return _Origin(f"hub:{dataset}", (), lambda: _read_hub(dataset, options))
    if path.is_file():
        end = path.suffix
        raise UserError(
            f"The data set {dataset!r} is a file; a data set is a folder with train{end} and "
            f"test{end}. In Python, give the frame or arrays that you read from it: a fifth of "
            "each class becomes test data.",
            "data-set-missing",
        )
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
    layouts: dict[str, list[Path]] = {}
    for suffix in (".parquet", ".npz", ".csv", ""):
        entries = [find_entry(root, f"{split}{suffix}") for split in ("train", "test")]
        there = [entry for entry in entries if (entry.is_file() if suffix else entry.is_dir())]
        if there:
            layouts[suffix] = there
    if len(layouts) != 1 or len(next(iter(layouts.values()))) != 2:
        listed = ", ".join(entry.name for entries in layouts.values() for entry in entries)
        raise UserError(
            f"The folder {root} holds {listed or 'no data set'}; it must hold one of {_LAYOUTS}.",
            "data-set-layout",
        )
    [(suffix, (train, test))] = layouts.items()
    if suffix:
        files = [train, test, *unit_files([train])]
        return _Origin(str(root), files, lambda: (_read(train, options), _read(test, options)))
    in_train, in_test = class_folders(train), class_folders(test)
    refuse_shared(
        {
            f"{half.name}/{name}": images
            for half, classes in ((train, in_train), (test, in_test))
            for name, images in classes.items()
        }
    )
    names = tuple(sorted({*in_train, *in_test}))
    files = [f for classes in (in_train, in_test) for images in classes.values() for f in images]
    return _Origin(
        # Include the classes: an empty class folder changes K but has no file.
        json.dumps([str(root), names]),
        files,
        lambda: (_folder_split(train, in_train, names), _folder_split(test, in_test, names)),
    )


def class_folders(root: Path) -> dict[str, list[Path]]:
    """The image files of every class: one sub-folder of ``root`` per class."""
    folders = visible(root)
    if odd := [entry for entry in folders if not entry.is_dir()]:
        raise UserError(
            f"{odd[0]} lies beside the class folders; only folders may lie there.", "folder-layout"
        )
    names = [class_text(folder.name) for folder in folders]
    refuse_twice(names, str(root))
    refuse_two_spellings(names, str(root))
    return {name: list_images(folder) for name, folder in zip(names, folders, strict=True)}


def _folder_split(
    root: Path, classes: Mapping[str, list[Path]], names: tuple[str, ...]
) -> LabeledSplit:
    files = [file for name in names for file in classes.get(name, [])]
    counts = [len(classes.get(name, [])) for name in names]
    labels = np.repeat(np.arange(len(names), dtype=np.int64), counts)
    return LabeledSplit(file_images(str(root), files), ClassLabels(labels, names))


def _read(path: Path, options: TableOptions) -> LabeledSplit:
    if path.suffix.lower() == ".npz":
        return npz_split(path, options)
    return table_split(open_table(path, options), options)


def _features(
    train: LabeledSplit, test: LabeledSplit, labels: Ints, options: TableOptions
) -> tuple[TableOptions, list[str]]:
    """Options with the columns of tables that are features, unless a file states them, and a
    sentence for each that is none, as it says the client, the class or the row of a point."""
    tables = [split.inputs for split in (train, test) if isinstance(split.inputs, Table)]
    if options.columns is not None or len(tables) < 2 or not tables[0].names:
        return options, []
    by = {"y": labels, "rows": np.arange(len(labels))}
    if options.group in train.columns:
        by = {"clients": np.unique(train.columns[options.group], return_inverse=True)[1]} | by
    first = tables[0]  # whose cells are texts where it is a CSV file
    said = {
        name: said_by(
            first.floats[name] if name in first.floats else first.column(name).to_pandas(), by
        )
        for name in first.names
    }
    saying = left_out(said)
    chosen = replace(options, columns=infer_columns(tables, saying)) if saying else options
    return chosen, in_words(saying)


def _write_source(
    directory: Path,
    splits: tuple[LabeledSplit, LabeledSplit],
    image_size: int,
    options: TableOptions,
    identity: str,
) -> None:
    train, test = splits
    classes = same_classes(train, test)
    features, said = _features(train, test, classes[0].numbers, options)
    shape, columns, bits, points = same_form(train.inputs, test.inputs, image_size, features)
    for name, labels, inputs in zip(("train", "test"), classes, points, strict=True):
        file, size = directory / f"{name}_inputs.npy", (len(inputs), *shape)
        write_blocks(file, size, inputs.dtype, inputs.blocks(shape))
        if name == "train":
            refuse_unused_range(open_array(file), train.inputs.where, bits)
        np.save(directory / f"{name}_labels.npy", labels.numbers, allow_pickle=False)
    # Numbered files, because a column's name may not be a valid file name.
    others = {name: f"column_{index}.npy" for index, name in enumerate(train.columns)}
    for name, file_name in others.items():
        np.save(directory / file_name, train.columns[name], allow_pickle=False)
    meta = {
        "class_names": classes[0].names,
        "columns": others,
        "features": None if columns is None else columns.to_json(),
        "bits": bits,
        "dataset": identity,
        "train": train.inputs.where,
        "test": test.inputs.where,
        "image_size": image_size,
        "notes": [*reading_notes([train.inputs, test.inputs]), *said],
    }
    text = json.dumps(meta, indent=1, ensure_ascii=False)
    (directory / META).write_text(text, encoding="utf-8")
