"""Every format gives its exact pixels; everything else is refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedul_flwr.data.sources import load_source, source_directory
from tests.data.conftest import pixels, png, write_parquet, write_png
from tests.support.refusals import refuses


def write_parquet_pair(root: Path, images: NDArray[np.uint8], **options: Any) -> None:
    """Write both splits with the same images and the labels 0, 1, 0, 1, ..."""
    labels = [row % 2 for row in range(len(images))]
    for split in ("train", "test"):
        write_parquet(
            root / f"{split}.parquet", [png(i) for i in images], {"label": labels}, **options
        )


def refused(dataset: Path | str, code: str, **options: Any) -> None:
    with refuses(code) as caught:
        load_source(str(dataset), **options)
    assert "\n" not in str(caught.value)


def test_digits_are_scaled_stratified_and_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.datasets import load_digits

    source = load_source("digits")
    assert (len(source.train), len(source.test)) == (1438, 359)
    assert source.input_shape == (8, 8, 1)
    assert source.class_names == tuple("0123456789")
    totals = np.bincount(load_digits().target)
    for split, share in ((source.train, 0.8), (source.test, 0.2)):
        assert np.abs(np.bincount(split.labels) - share * totals).max() <= 0.5
    # Value v of 0..16 becomes round(v * 255 / 16): together the splits are all of the data.
    expected = np.rint(load_digits().images * 255 / 16).astype(np.uint8).reshape(-1, 64)
    found = np.concatenate([source.train.inputs, source.test.inputs]).reshape(-1, 64)
    assert sorted(map(bytes, found)) == sorted(map(bytes, expected))
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "other"))
    again = load_source("digits")
    np.testing.assert_array_equal(source.test.inputs, again.test.inputs)
    np.testing.assert_array_equal(source.train.labels, again.train.labels)


@pytest.mark.parametrize(("shape", "column"), [((7, 5), "img"), ((7, 5, 3), "picture")])
def test_parquet_gives_the_exact_pixels(
    tmp_path: Path, shape: tuple[int, ...], column: str
) -> None:
    images = pixels(9, *shape)
    write_parquet_pair(tmp_path, images, image=column, names=["cat", "dog"])
    source = load_source(str(tmp_path))
    np.testing.assert_array_equal(source.train.inputs, images.reshape(9, 7, 5, -1))
    np.testing.assert_array_equal(source.test.inputs, images.reshape(9, 7, 5, -1))
    assert source.train.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert source.train.labels.dtype == np.int64
    assert source.class_names == ("cat", "dog")


def test_parquet_missing_labels_and_further_columns(tmp_path: Path) -> None:
    content = [png(image) for image in pixels(3, 4, 4)]
    train = {
        "fine_label": [2, None, -1],
        "coarse_label": [0, 1, None],
        "writer_id": ["anna", None, "ben"],
        "vector": [[1.0], [2.0], [3.0]],
        "caption": ["x" * 1000] * 3,
    }
    write_parquet(tmp_path / "train.parquet", content, train)
    write_parquet(tmp_path / "test.parquet", content, {"fine_label": [0, 1, 3]})
    source = load_source(str(tmp_path))
    assert source.train.labels.tolist() == [2, -1, -1]
    assert source.class_names == ("0", "1", "2", "3")
    assert {name: column.tolist() for name, column in source.train.columns.items()} == {
        "coarse_label": [0, 1, -1],
        "writer_id": ["anna", "", "ben"],
    }
    assert source.test.columns == {}


def test_image_folders_use_the_union_of_classes(tmp_path: Path) -> None:
    images = pixels(4, 6, 5)
    write_png(tmp_path / "train" / "dog" / "1.png", images[0])
    write_png(tmp_path / "train" / "cat" / "2.png", images[1])
    write_png(tmp_path / "train" / "cat" / "1.png", images[2])
    write_png(tmp_path / "test" / "ant" / "1.png", images[3])
    (tmp_path / "train" / "cat" / ".DS_Store").write_text("left by a desktop")
    source = load_source(str(tmp_path))
    assert source.class_names == ("ant", "cat", "dog")
    assert source.train.labels.tolist() == [1, 1, 2]
    np.testing.assert_array_equal(source.train.inputs[..., 0], images[[2, 1, 0]])
    np.testing.assert_array_equal(source.test.inputs[..., 0], images[3:])
    (tmp_path / "test" / "bee").mkdir()
    assert load_source(str(tmp_path)).class_names == ("ant", "bee", "cat", "dog")


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (5, 4, 3)])
def test_npz_of_bytes_and_of_floats(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = pixels(6, *shape)
    floats = (images / 255).astype(np.float32)
    np.savez(tmp_path / "train.npz", images=images, labels=np.arange(6), group_id=np.arange(6) * 2)
    np.savez(tmp_path / "test.npz", images=floats, labels=np.arange(6).astype(np.float64))
    source = load_source(str(tmp_path))
    np.testing.assert_array_equal(source.train.inputs, images.reshape(6, 5, 4, -1))
    np.testing.assert_array_equal(source.test.inputs, images.reshape(6, 5, 4, -1))
    assert source.train.columns["group_id"].tolist() == [0, 2, 4, 6, 8, 10]
    assert source.test.labels.tolist() == [0, 1, 2, 3, 4, 5]


def test_hub_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    images = pixels(300, 3, 3)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "writer_id": datasets.Value("string"),
            "character": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    # One image only as a path: so do hub data sets made of files.
    write_png(tmp_path / "0.png", images[0])
    cells = [str(tmp_path / "0.png"), *({"bytes": png(i), "path": None} for i in images[1:])]
    rows = {"image": cells, "writer_id": ["w"] * 300, "character": [1] * 300}
    split = datasets.Dataset.from_dict(rows, features=features)
    asked = []

    def load_dataset(*arguments: Any) -> Any:
        asked.append(arguments)
        return datasets.DatasetDict({"train": split, "test": split})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for _ in range(2):
        source = load_source("owner/letters:lower")
    assert asked == [("owner/letters", "lower")]
    np.testing.assert_array_equal(source.train.inputs[..., 0], images)
    assert (source.class_names, set(source.train.labels)) == (("a", "b"), {1})
    assert list(source.train.columns) == ["writer_id"]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: {"train": split, "valid": split})
    refused("letters", "data-set-layout")


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    error = ConnectionError("Couldn't reach 'owner/x' on the Hub\nmore")
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=error))
    refused("owner/x", "data-set-missing")


def test_image_size_resizes_bilinearly(tmp_path: Path) -> None:
    images = pixels(2, 10, 6)
    write_png(tmp_path / "train" / "a" / "1.png", images[0])
    write_png(tmp_path / "train" / "a" / "2.png", pixels(1, 3, 4)[0])
    write_png(tmp_path / "test" / "a" / "1.png", images[1])
    refused(tmp_path, "image-size")
    source = load_source(str(tmp_path), image_size=5)
    assert source.input_shape == (5, 5, 1)
    expected = Image.fromarray(images[0]).resize((5, 5), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(source.train.inputs[0, ..., 0], np.asarray(expected))


def test_a_changed_source_gets_a_new_key(tmp_path: Path) -> None:
    file = tmp_path / "train" / "a" / "1.png"
    for split in ("train", "test"):
        write_png(tmp_path / split / "a" / "1.png", pixels(1, 3, 3)[0])
    first = source_directory(str(tmp_path))
    assert source_directory(str(tmp_path)) == first
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert source_directory(str(tmp_path)) != first


@pytest.mark.parametrize("way", ["written in place", "put in its place"])
def test_a_file_of_the_same_size_and_time_is_read_anew(tmp_path: Path, way: str) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("x,label\n1,0\n2,1\n")
    file = tmp_path / "train.csv"
    status = file.stat()
    assert load_source(str(tmp_path)).train.labels.tolist() == [0, 1]
    new = file if way == "written in place" else tmp_path.parent / f"{tmp_path.name}.csv"
    new.write_text("x,label\n1,1\n2,0\n")
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(file)
    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert load_source(str(tmp_path)).train.labels.tolist() == [1, 0]


def test_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").touch()
    with refuses("data-set-missing", match="is a file"):
        load_source(str(tmp_path / "x.parquet"))


def test_paths_that_hold_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in (str(tmp_path / "none"), "./none", "~/none/none", "data/none", "a/b/c"):
        refused(name, "data-set-missing")
    refused("data", "data-set-layout")
    refused("", "data-set-missing")
    (tmp_path / "x.parquet").write_text("x")
    refused("x.parquet", "data-set-missing")


def test_damaged_parquet(tmp_path: Path) -> None:
    write_parquet_pair(tmp_path, pixels(50, 8, 8))
    whole = (tmp_path / "train.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, "file-not-readable")
    # A good footer around damaged pages is found only while rows are read.
    (tmp_path / "train.parquet").write_bytes(whole[:4] + b"\xff" * 4000 + whole[4004:])
    refused(tmp_path, "file-not-readable")


def test_classes_that_a_format_lists_must_be_those_of_both_splits(tmp_path: Path) -> None:
    content = [png(image) for image in pixels(2, 3, 3)]
    write_parquet(tmp_path / "train.parquet", content, {"label": [0, 1]}, names=["a", "b"])
    write_parquet(tmp_path / "test.parquet", content, {"label": [0, 1]}, names=["b", "a"])
    refused(tmp_path, "splits-differ")
    write_parquet(tmp_path / "test.parquet", content, {"label": [0, 2]})
    refused(tmp_path, "label-unknown")
