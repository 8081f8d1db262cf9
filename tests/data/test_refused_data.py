"""Data sets and owners' folders that cannot be used: each in one sentence with its code."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedul_flwr.data import table_files
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.table_files import npz_array
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.errors import OwnDataError
from tests.data.conftest import pixels, png, write_files
from tests.support.points import load_points
from tests.support.refusals import refuses

GOOD = "x,label\n1,0\n2,1\n"
IMAGES = [{"bytes": png(image), "path": None} for image in pixels(3, 4, 4)]
CUT = {"bytes": png(pixels(1, 4, 4)[0])[:40], "path": None}
FLOATS = {"bytes": png(pixels(1, 4, 4)[0].astype(np.float32), "TIFF"), "path": None}
SIX = {"images": pixels(6, 5, 4), "labels": np.array([0, 1, 2, 0, 1, -1])}
PHOTO = pixels(1, 4, 5)[0]


def listed(images: list[Any], labels: list[Any], label: str = "label") -> pa.Table:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table({"image": pa.array(images, kind), label: labels})


def csv(train: str | bytes, test: str = GOOD) -> dict[str, Any]:
    return {"train.csv": train, "test.csv": test}


def parquet(images: list[Any], labels: list[Any], label: str = "label") -> dict[str, Any]:
    test = listed(IMAGES, [0, 1, 0])
    return {"train.parquet": listed(images, labels, label), "test.parquet": test}


def npz(**changes: Any) -> dict[str, Any]:
    train = {name: array for name, array in {**SIX, **changes}.items() if array is not None}
    return {"train.npz": train, "test.npz": SIX}


DATA_SETS: list[tuple[dict[str, Any], str]] = [
    (csv("x,label\n1,0\n,1\nNA,1\n"), "cell-not-a-number"),
    (csv("x,label\n1,0\n1e39,1\n"), "cell-not-a-number"),
    (csv("y,label\n1,0\n2,1\n"), "columns-differ"),
    (csv("x\n1\n2\n"), "column-missing"),
    (csv("label\n1\n2\n"), "column-missing"),
    (csv("x,x,label\n1,2,0\n"), "column-missing"),
    (csv("x,label\n"), "points-missing"),
    (csv("x,label\n2020-01-01,0\n2020-01-02,1\n"), "column-of-dates"),
    # What the bytes, the dialect and the numbers of a file leave open.
    (csv(""), "csv-header"),
    (csv("#a,b\nc,d\ne,f\n"), "csv-header"),
    (csv("x,label\n1,0\n1,2,3\n"), "csv-ragged-row"),
    (csv("a,b\n1,2\n3\n"), "csv-ragged-row"),
    (csv("Report\na;b\n1;2\n"), "csv-ragged-row"),
    (csv(b"a,b\nx,\n\xc3\xb6,\xf6\n"), "csv-encoding"),
    (csv("a,b\n1,Привет\n".encode("cp1251")), "csv-encoding"),
    (csv("a,b\n1,2\n".encode("utf-16-le")), "csv-encoding"),
    (csv(b"PK\x03\x04rest"), "file-not-readable"),
    (csv("a,x;b,y\n1,p;q,2\n"), "csv-separator"),
    (csv('a,b\n1,"x\n2,y\n3,z\n'), "csv-quote"),  # to the end of the file
    (csv('a,b\n1,x\n2,"y\n3,"z\n4,w\n'), "csv-quote"),  # valid but for what follows
    (csv('# by hand\na,b\n1,x\n"2,y\n3,z\n'), "csv-quote"),
    (csv("a;b\n1.234;2,5\n"), "decimal-mark"),
    (csv("a;b\n1.234;2\n"), "decimal-mark"),
    (csv('a,b\n"1,234",2\n'), "decimal-mark"),
    (csv('a,b\n1,"x\ny"\n"1,5",z\n2.5,z\n'), "decimal-mark"),
    (csv("a;b\n1,5;37.25\n"), "decimal-mark"),
    # Labels.
    (csv("x,label\n1,01\n2,02\n"), "splits-differ"),
    (csv("x,label\n1,cat\n2,dog\n", "x,label\n1,cat\n2,Dog\n"), "splits-differ"),
    (csv("x,label\n1,7\n2,7\n", "x,label\n1,7\n2,-1\n"), "number-of-classes"),
    (csv("x,label\n1,0.5\n2,1\n"), "labels-wrong"),
    (parquet([IMAGES[0], CUT, IMAGES[2]], [0, 1, 0]), "image-not-readable"),
    (parquet([FLOATS] * 3, [0, 1, 0]), "image-not-readable"),
    (parquet([*IMAGES[:2], None], [0, 1, 0]), "points-missing"),
    (parquet([], []), "points-missing"),
    (parquet(IMAGES, [0, 1, 0], "id"), "column-missing"),
    (parquet(IMAGES, ["a", "b", "c"]), "splits-differ"),
    (parquet(IMAGES, [0, -2, 2]), "labels-wrong"),
    *(
        (npz(**{name: array}), "array-wrong")
        for name, array in (
            ("images", None),
            ("labels", None),
            ("images", np.full((6, 5, 4), 1.01)),
            ("images", np.full((6, 5, 4), 256)),
            ("images", np.zeros((6, 3, 5, 4), np.uint8)),
            ("group", np.arange(4)),
            ("class_names", np.zeros(0, str)),
        )
    ),
    (npz(images=np.array([None] * 6)), "file-not-readable"),
    (npz(images=pixels(0, 5, 4), labels=np.zeros(0, int)), "points-missing"),
    (npz(labels=np.arange(5)), "points-and-labels-differ"),
    (npz(images=pixels(6, 5, 5)), "image-size"),
    (npz(vectors=np.zeros((6, 3))), "files-contradict"),
    (npz(images=None, vectors=np.zeros((6, 3, 4))), "array-wrong"),
    *(
        (
            {
                f"{split}.npz": {"vectors": np.zeros((6, width)), "labels": SIX["labels"]}
                for split in ("train", "test")
            },
            "too-many-columns",
        )
        for width in (0, 100_001)
    ),
    (npz(images=None, vectors=np.zeros((6, 3))), "splits-differ"),
    ({**csv(GOOD), "train.npz": SIX}, "data-set-layout"),
    ({"train.csv": GOOD}, "data-set-layout"),
    ({"train/notes.txt": "x", "test/a/1.png": PHOTO}, "folder-layout"),
    ({"train/Cat/1.png": PHOTO, "train/cat/1.png": PHOTO, "test/a": None}, "class-names-wrong"),
    ({"train/a/1.png": PHOTO, "test/a/1.png": PHOTO[:3]}, "image-size"),
]


@pytest.mark.parametrize(("files", "code"), DATA_SETS)
def test_data_sets(files: dict[str, Any], code: str, tmp_path: Path) -> None:
    write_files(tmp_path / "d", files)
    with refuses(code) as caught:
        load_source(str(tmp_path / "d"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"columns": Columns((Column("sex", ("f", "m")),))}, "category-unknown"),
        ({"columns": Columns((Column("sex"),))}, "cell-not-a-number"),
        ({"columns": Columns((Column("height"),))}, "column-missing"),
        ({"label": "diagnosis"}, "column-missing"),
        ({"missing": "mean"}, "column-without-spread"),
        ({"text": "age"}, "text-wrong"),
    ],
)
def test_options_that_a_table_does_not_fit(
    options: dict[str, Any], code: str, tmp_path: Path
) -> None:
    for split, sex in (("train", "m"), ("test", "x")):
        columns = {"sex": ["f", sex], "age": [30, 40], "label": [0, 1]}
        table = pa.table({**columns, "empty": pa.array([None, None], pa.float64())})
        write_files(tmp_path / "d", {f"{split}.parquet": table})
    with refuses(code):
        load_source(str(tmp_path / "d"), table=TableOptions(**options))


SETS: dict[str, Any] = {
    "priors.csv": "set,dog,cat\nyoung,0.25,0.75\nold,1,0\nother,0.5,0.5\n",
    "young/b/1.png": pixels(1, 4, 4)[0],
    "old.parquet": listed(IMAGES, [0, 0, 0]),
    "other.npz": {"images": pixels(1, 4, 4)},
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"extra": None}, "folder-layout"),
        ({"young.npz": {"images": pixels(1, 4, 4)}}, "files-contradict"),
        ({"counts.csv": "set,cat,dog\nyoung,1,2\n"}, "files-contradict"),
        ({"PRIORS.CSV": "set,cat,dog\nyoung,1,2\n"}, "files-contradict"),
        ({"other.npz": ..., "other": "x"}, "folder-layout"),
        ({"other.npz": ..., "other": None}, "points-missing"),
        ({"other.npz": ..., "other/x.csv": "x"}, "folder-layout"),
        ({"other.npz": ...}, "set-missing"),
        ({"priors.csv": ...}, "file-missing"),
        *(
            ({"priors.csv": text}, code)
            for text, code in (
                ("set,cat,dog,cat\nyoung,1,0,0\n", "priors-header"),
                ("set,cat,cow\nyoung,1,0\n", "priors-header"),
                ("set,cat,dog\n", "priors-header"),
                ("set,cat,dog\nyoung,1\n", "csv-ragged-row"),
                ("set,cat,dog\nold,1,0\nold,0,1\n", "name-twice"),
                ("set,cat,dog\n../x,1,0\n", "folder-layout"),
                ("set,cat,dog\nyoung,1,0\nold,0,1\n", "folder-layout"),
                ("set,cat,dog\nyoung,0.4-0.2,0.6\n", "priors-cell"),  # ends before it begins
                ("set,cat,dog\nyoung,0.1-0.2,0.3\n", "priors-cell"),  # sums from 0.4 to 0.5
                ("set,cat,dog\nyoung,0.5-0.6,0.7\n", "priors-cell"),  # sums from 1.2 to 1.3
                ("set,cat,dog\nyoung,inf,0\n", "priors-cell"),
                ("set,cat,dog\nyoung,nan,0\n", "priors-cell"),
                ("set,cat,dog\nyoung,x,0\n", "priors-cell"),
            )
        ),
        *(
            ({"priors.csv": ..., "counts.csv": f"set,cat,dog\nyoung,{cell},0\n"}, "priors-cell")
            for cell in ("1.5", "-1", "1e3", "²")
        ),
    ],
)
def test_sets(changes: dict[str, Any], code: str, tmp_path: Path) -> None:
    files = {name: file for name, file in {**SETS, **changes}.items() if file is not ...}
    write_files(tmp_path / "d", files)
    with refuses(code, OwnDataError) as caught:
        load_unlabeled_sets(tmp_path / "d", ("cat", "dog"), 2, (4, 4, 1))
    assert "\n" not in str(caught.value)


FILES: dict[str, Any] = dict.fromkeys(("a/1.png", "a/2.png", "b.png"), PHOTO)
FOLDERS: dict[str, Any] = dict.fromkeys(("cat/1.png", "dog/1.png", "unlabeled/1.png"), PHOTO)


@pytest.mark.parametrize(
    ("files", "form", "code"),
    [
        *(
            ({**FILES, "labels.csv": text}, "auto", code)
            for text, code in (
                ("", "csv-header"),
                ("name,label\nb.png\n", "csv-ragged-row"),
                ("file,label\nb.png,dog\n", "labels-file-wrong"),
                ("name,label\n1.png,dog\n", "labels-file-wrong"),
                ("name,label\nb.png,cow\n", "label-unknown"),
                ("name,label\nb.png,\nb.png,dog\n", "name-twice"),
            )
        ),
        # It belongs to the top.
        ({**FILES, "a/labels.csv": "name,label\n"}, "auto", "folder-layout"),
        ({**FILES, "x.npz": {"images": pixels(1, 4, 4)}}, "auto", "folder-layout"),
        ({"labels.csv": "name,label\n"}, "auto", "points-missing"),
        ({"y.npz": SIX, "labels.csv": "name,label\n6,dog\n"}, "auto", "labels-file-wrong"),
        ({**FOLDERS, "labels.csv": "name,label\n"}, "auto", "folder-layout"),
        ({**FOLDERS, "labels.csv": "name,label\n"}, "class-folders", "folder-layout"),
        ({**FOLDERS, "notes.txt": "x"}, "class-folders", "folder-layout"),
        ({**FOLDERS, "cow/1.png": PHOTO}, "class-folders", "folder-layout"),
        ({**FOLDERS, "cat/notes.txt": "x"}, "auto", "folder-layout"),
    ],
)
def test_partly_labeled(files: dict[str, Any], form: str, code: str, tmp_path: Path) -> None:
    write_files(tmp_path / "d", files)
    with refuses(code, OwnDataError) as caught:
        load_partly_labeled(tmp_path / "d", ("cat", "dog"), (4, 5, 1), form=form)
    assert "\n" not in str(caught.value)


def test_paths_of_owners(tmp_path: Path) -> None:
    write_files(tmp_path, {"empty": None, "x.txt": "x", "x.png": "x", "known.csv": "name,label\n"})
    for name in ("none", "x.png"):
        with refuses("folder-missing", OwnDataError):
            load_unlabeled_sets(tmp_path / name, None, 2, (4, 4, 1))
    write_files(tmp_path / "d", {**FILES, "labels.csv": "name,label\n"})
    with refuses("files-contradict", OwnDataError):
        load_partly_labeled(tmp_path / "d", (), (4, 5, 1), known_labels=tmp_path / "known.csv")
    for name, code in (
        ("none", "file-missing"),
        ("empty", "points-missing"),
        ("x.txt", "folder-layout"),
        ("x.png", "image-not-readable"),
    ):
        with refuses(code):
            load_points(tmp_path / name, (3, 3, 1))


def test_an_array_that_no_memory_has_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400,000 zeros are 3.2 MB, of which compression leaves 3 kB."""
    file = tmp_path / "ward.npz"
    np.savez_compressed(file, vectors=np.zeros((400_000, 1)))
    assert file.stat().st_size < 10_000
    assert npz_array(file, "vectors").shape == (400_000, 1)
    monkeypatch.setattr(table_files, "memory_size", lambda: 3_000_000)
    with refuses("file-too-large", match="3,200,128 bytes"):
        npz_array(file, "vectors")
