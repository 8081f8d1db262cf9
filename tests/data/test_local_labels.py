"""A data owner's partly labeled points: exact pixels and labels, refusals in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.local_data import load_partly_labeled
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.errors import OwnDataError
from tests.data.conftest import pixels, png, write_parquet, write_png
from tests.support.refusals import refuses

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


def load(root: Path, names: Any = NAMES, **options: Any) -> PartlyLabeledPoints:
    return load_partly_labeled(root, names, SHAPE, **options)


def labels(found: PartlyLabeledPoints) -> list[int]:
    """By the order of the names, or of the rows."""
    return found.labels[np.argsort(found.points)].tolist()


def test_images_by_name_with_the_labels_they_have(owned: Path) -> None:
    found = load(owned)
    np.testing.assert_array_equal(found.inputs[..., 0], pixels(4, 4, 4))
    names = ("a/1.png", "a/2.png", "b.png", "c.png")
    assert found.names == tuple(names[point] for point in found.points)
    assert labels(found) == [0, -1, 1, -1]
    assert sorted(found.points) == [0, 1, 2, 3]
    assert not found.new.any()
    assert found.new.dtype == np.bool_
    assert not found.inputs.flags.writeable


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
    np.testing.assert_array_equal(found.inputs[..., 0], images)
    assert found.names == tuple(map(str, found.points))
    assert sorted(found.points) == list(range(12))
    assert labels(found) == [0] + [-1] * 9 + [1, -1]
    assert found.points.tolist() != list(range(12))  # rows, too, are often sorted by class


def test_decoded_copies_are_for_this_user_only(owned: Path, cache: Path) -> None:
    load(owned)
    homes = [path for path in (cache / "owned").iterdir() if path.is_dir()]
    assert len(homes) == 2  # images, and their order
    assert not any(home.stat().st_mode & 0o077 for home in homes)


def test_labels_from_elsewhere(owned: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "known.csv"
    (owned / "labels.csv").rename(elsewhere)
    assert load(owned).labels.tolist() == [-1] * 4
    assert labels(load(owned, known_labels=elsewhere)) == [0, -1, 1, -1]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders of two cats (one deeper), a dog and two images without a label."""
    root = tmp_path / "shelter"
    names = ("cat/1.png", "cat/2024/1.png", "dog/1.png", "unlabeled/1.png", "unlabeled/2.png")
    for image, name in zip(pixels(5, 4, 4), names, strict=True):
        write_png(root / name, image)
    return root


def test_folders_give_the_labels_and_names_stay_paths(folders: Path) -> None:
    (folders / ".DS_Store").touch()
    found = load(folders)
    assert dict(zip(found.names, found.labels.tolist(), strict=True)) == {
        **{"cat/1.png": 0, "cat/2024/1.png": 0, "dog/1.png": 1},
        **{"unlabeled/1.png": -1, "unlabeled/2.png": -1},
    }
    for name, image in zip(("cat/1.png", "cat/2024/1.png"), pixels(2, 4, 4), strict=True):
        point = found.points[found.names.index(name)]
        np.testing.assert_array_equal(found.inputs[point, ..., 0], image)
    assert sorted(found.points.tolist()) == [0, 1, 2, 3, 4]
    assert not found.new.any()


def test_other_folders_are_files_unless_it_is_said(folders: Path) -> None:
    assert (load(folders, form="files").labels == -1).all()
    found = load(folders, ("cow", "owl"))
    assert (found.labels == -1).all()
    assert "no folder is called cow or owl" in found.notes[0]
    with refuses("folder-layout", OwnDataError):  # cat is no class, and dog is one
        load(folders, ("dog", "owl"))
    (folders / "cat" / "1.png").rename(folders / "1.png")
    with refuses("folder-layout", OwnDataError):
        load(folders)
    assert (load(folders, form="files").labels == -1).all()


def test_their_order_is_one_of_pixels_alone(folders: Path) -> None:
    """Whoever sees points in order, as XCLP's server does, must not read classes from it."""
    before = load(folders)
    (folders / "cat").rename(folders / "x")
    (folders / "dog").rename(folders / "cat")
    (folders / "x").rename(folders / "dog")
    after = load(folders)
    np.testing.assert_array_equal(after.inputs[after.points], before.inputs[before.points])
    assert after.labels.tolist() == [{0: 1, 1: 0}.get(k, k) for k in before.labels.tolist()]
    # Of twelve in two classes, not one class after the other.
    for image, number in zip(pixels(12, 4, 4, seed=1), range(12), strict=True):
        write_png(folders / ("cat", "dog")[number // 6] / f"new-{number}.png", image)
    found = load(folders).labels
    assert (np.diff(found[found >= 0]) != 0).sum() > 1
