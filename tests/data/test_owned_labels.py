"""A data owner's partly labelled points: exact pixels and labels, refusals in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data import decode, formats
from fedul_flwr.data.owned_labels import load_partly_labeled
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.errors import UserError
from tests.data.conftest import pixels, png, write_parquet, write_png

NAMES = ("cat", "dog")
SHAPE = (4, 4, 1)
LABELS = "name,label\nb.png,dog\na/1.png,cat\n\na/2.png,\n"


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A folder of four images with the labels cat, none (empty), dog, none (not named)."""
    root = tmp_path / "clinic"
    root.mkdir()
    for image, name in zip(pixels(4, 4, 4), ("a/1.png", "a/2.png", "b.png", "c.png"), strict=True):
        write_png(root / name, image)
    (root / "labels.csv").write_text(LABELS)
    return root


def load(root: Path, names: Any = NAMES, shape: Any = SHAPE) -> PartlyLabeledPoints:
    return load_partly_labeled(root, names, shape)


def refused(root: Path, message: str, **options: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load(root, **options)
    assert "\n" not in str(caught.value)


def test_images_by_name_with_the_labels_they_have(owned: Path) -> None:
    found = load(owned)
    np.testing.assert_array_equal(found.images[..., 0], pixels(4, 4, 4))
    assert found.names == ("a/1.png", "a/2.png", "b.png", "c.png")
    assert found.labels.tolist() == [0, -1, 1, -1]
    assert found.points.tolist() == [0, 1, 2, 3]
    assert not found.new.any()
    assert found.new.dtype == np.bool_
    assert not found.images.flags.writeable


def test_without_a_file_of_labels_nothing_is_labelled(owned: Path) -> None:
    (owned / "labels.csv").unlink()
    assert load(owned).labels.tolist() == [-1] * 4


@pytest.mark.parametrize("form", ["x.npz", "x.parquet"])
def test_rows_of_a_table_by_number(tmp_path: Path, form: str) -> None:
    images = pixels(12, 4, 4)
    if form == "x.npz":
        np.savez(tmp_path / form, images=images, labels=np.array([None]))  # never read
    else:
        write_parquet(tmp_path / form, [png(image) for image in images], {"label": ["?"] * 12})
    (tmp_path / "labels.csv").write_text("name,label\n10,1\n0,0\n")
    (tmp_path / ".hidden").write_text("left by a desktop")
    found = load(tmp_path, ("0", "1"))
    np.testing.assert_array_equal(found.images[..., 0], images)
    assert found.names == tuple(str(row) for row in range(12))
    assert found.labels.tolist() == [0] + [-1] * 9 + [1, -1]


def test_other_labels_need_no_decoding(owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(owned)

    def fail(*_: Any) -> None:
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr(decode, "decode_image", fail)
        (owned / "labels.csv").write_text(LABELS.replace("dog", "cat"), encoding="utf-8-sig")
        assert load(owned).labels.tolist() == [0, -1, 0, -1]
    write_png(owned / "c.png", np.full((4, 4), 7, np.uint8))
    assert load(owned).images[3, 0, 0, 0] == 7
    assert load(owned, shape=(6, 5, 3)).images.shape == (4, 6, 5, 3)


def test_labels_in_the_table_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "x.npz", images=pixels(3, 4, 4), labels=np.array([0, 1, 0]))
    read = []
    original = formats._npz_array

    def recorded(path: Path, name: str) -> Any:
        read.append(name)
        return original(path, name)

    monkeypatch.setattr(formats, "_npz_array", recorded)
    assert load(tmp_path).labels.tolist() == [-1] * 3
    assert set(read) == {"images"}


def test_decoded_copies_are_for_this_user_only(owned: Path, cache: Path) -> None:
    load(owned)
    (home,) = (path for path in (cache / "owned").iterdir() if path.is_dir())
    assert home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"labels\.csv must begin with the header 'name,label'\.$"),
        ("label,name\ncat,b.png\n", "must begin with the header 'name,label'"),
        ("name,label\nb.png\n", r"The row of 'b\.png' in .* has 1 values; it needs a name and a"),
        ("name,label\nb.png,dog,1\n", "has 3 values; it needs a name and a label"),
        ("name,label\n1.png,dog\n", r"names '1\.png', which .*clinic does not hold; names are"),
        ("name,label\n0,dog\n", "names '0', which .*clinic does not hold"),
        ("name,label\nb.png,cow\n", r"gives 'b\.png' the label 'cow'; it must be one of cat, dog"),
        ("name,label\nb.png,1\n", r"gives 'b\.png' the label '1'; it must be one of cat, dog, or"),
        ("name,label\nb.png,dog\nb.png,dog\n", r"names 'b\.png' more than once; one row per image"),
        ("name,label\nb.png,\nb.png,dog\n", r"names 'b\.png' more than once"),
    ],
)
def test_labels_that_are_refused(owned: Path, text: str, message: str) -> None:
    (owned / "labels.csv").write_text(text)
    refused(owned, message)


def test_folders_that_are_refused(owned: Path, tmp_path: Path) -> None:
    refused(owned / "none", r"The data folder .* does not exist; it must hold images, and labels")
    refused(owned / "b.png", "does not exist; it must hold images")
    (owned / "labels.csv").write_bytes(b"name,label\n\xff,dog\n")
    refused(owned, r"labels\.csv cannot be read as a CSV file in UTF-8")
    (owned / "labels.csv").unlink()
    (owned / "a" / "labels.csv").write_text(LABELS)  # it belongs to the top
    refused(owned, r"a/labels\.csv is not an image; only \.png")
    (owned / "a" / "labels.csv").unlink()
    np.savez(owned / "x.npz", images=pixels(1, 4, 4))
    refused(owned, r"holds x\.npz and a; besides labels\.csv there may be images, or one \.parquet")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "labels.csv").write_text("name,label\n")
    refused(empty, "empty holds no images; one or more are needed")
    np.savez(empty / "x.npz", images=pixels(0, 4, 4))
    refused(empty, r"x\.npz holds no images; one or more are needed")
    np.savez(empty / "y.npz", images=pixels(1, 4, 4))
    refused(empty, r"empty holds x\.npz and y\.npz; besides")
    (empty / "x.npz").unlink()
    (empty / "labels.csv").write_text("name,label\n1,dog\n")
    refused(empty, r"names '1', which .*y\.npz does not hold; names are .* row numbers from 0")
