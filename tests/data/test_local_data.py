"""A data owner's points: sets, partly labeled points, vectors; exact pixels, labels never read."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fedul_flwr.data import decode
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.errors import OwnDataError
from tests.data.conftest import pixels, png, write_files, write_parquet, write_png
from tests.support.refusals import refuses

NAMES = ("cat", "dog")
SHAPE = (4, 4, 1)
PRIORS = "set,dog,cat\nyoung,0.25,0.75\nold,1,0\nother,0.5,0.5\n"


@pytest.fixture
def of_sets(tmp_path: Path) -> Path:
    """Return a folder with a set of each form, 2 + 3 + 1 gray images of 4x4."""
    root, images = tmp_path / "clinic", pixels(6, 4, 4)
    files = {"priors.csv": PRIORS, "young/b/1.png": images[1], "young/a.png": images[0]}
    write_files(root, {**files, "other.npz": {"images": images[5:]}, ".hidden": "of a desktop"})
    write_parquet(root / "old.parquet", [png(image) for image in images[2:5]])
    return root


def test_sets_in_the_order_of_the_csv_with_exact_pixels(of_sets: Path) -> None:
    sets = load_unlabeled_sets(of_sets, NAMES, 2, SHAPE)
    np.testing.assert_array_equal(sets.inputs[..., 0], pixels(6, 4, 4))
    assert sets.points.tolist() == [0, 1, 2, 3, 4, 5]
    assert sets.sets.tolist() == [0, 0, 1, 1, 1, 2]
    assert sets.set_sizes.tolist() == [2, 3, 1]
    # The columns dog, cat are put into the order of the model's classes: cat, dog.
    assert sets.priors.tolist() == [[0.75, 0.25], [0.0, 1.0], [0.5, 0.5]]
    assert sets.priors.dtype == np.float64
    assert not sets.inputs.flags.writeable


def test_new_images_alone_are_decoded(of_sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_unlabeled_sets(of_sets, NAMES, 2, SHAPE)
    with monkeypatch.context() as patch:
        patch.setattr(decode, "decode_image", None)  # whoever called it would fail
        (of_sets / "priors.csv").write_text(PRIORS.replace("0.25,0.75", "0.5,0.5"))
        assert load_unlabeled_sets(of_sets, NAMES, 2, SHAPE).priors[0].tolist() == [0.5, 0.5]
    write_png(of_sets / "young" / "a.png", np.full((4, 4), 7, np.uint8))
    write_png(of_sets / "young" / "c.png", np.full((4, 4), 9, np.uint8))
    sets = load_unlabeled_sets(of_sets, NAMES, 2, SHAPE)
    assert sets.inputs[[0, 2], 0, 0, 0].tolist() == [7, 9]
    assert sets.set_sizes.tolist() == [3, 3, 1]


def test_images_are_brought_to_the_models_shape(of_sets: Path) -> None:
    rgb = load_unlabeled_sets(of_sets, NAMES, 2, (6, 5, 3)).inputs
    assert rgb.shape == (6, 6, 5, 3)
    for row in range(6):
        image = Image.fromarray(pixels(6, 4, 4)[row]).convert("RGB")
        expected = image.resize((5, 6), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(rgb[row], np.asarray(expected))
    write_png(of_sets / "young" / "a.png", pixels(1, 4, 4, 3)[0])
    gray = load_unlabeled_sets(of_sets, NAMES, 2, SHAPE).inputs
    expected = Image.fromarray(pixels(1, 4, 4, 3)[0]).convert("L")
    np.testing.assert_array_equal(gray[0, ..., 0], np.asarray(expected))


LABELS = "name,label\nb.png,dog\na/1.png,cat\n\na/2.png,\n"


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A folder of four images with the labels cat, none (empty), dog, none (not named)."""
    names = ("a/1.png", "a/2.png", "b.png", "c.png")
    images = dict(zip(names, pixels(4, 4, 4), strict=True))
    write_files(tmp_path / "clinic", {**images, "labels.csv": LABELS})
    return tmp_path / "clinic"


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
    [home] = [path for path in (cache / "owned").iterdir() if path.is_dir()]
    assert not home.stat().st_mode & 0o077


def test_labels_from_elsewhere(owned: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "known.csv"
    (owned / "labels.csv").rename(elsewhere)
    assert load(owned).labels.tolist() == [-1] * 4
    assert labels(load(owned, known_labels=elsewhere)) == [0, -1, 1, -1]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders of two cats (one deeper), a dog and two images without a label."""
    names = ("cat/1.png", "cat/2024/1.png", "dog/1.png", "unlabeled/1.png", "unlabeled/2.png")
    write_files(tmp_path / "shelter", dict(zip(names, pixels(5, 4, 4), strict=True)))
    return tmp_path / "shelter"


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


COLUMNS = Columns((Column("age"), Column("sex", ("f", "m"))))
KNOWN = TableOptions(columns=COLUMNS)
CSV = "sex,age,label\nf,30,ill\nm,40,\nf,50,well\n"


WELL = ("well", "ill")


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """Two sets: a CSV file with labels, which nobody reads, and a parquet file."""
    table = pa.table({"age": [20.0, 25.0], "sex": ["m", "f"], "id": [7, 8]})
    files = {"priors.csv": "set,well,ill\njanuary,0.5,0.5\nfebruary,1,0\n"}
    write_files(tmp_path / "ward", {**files, "january.csv": CSV, "february.parquet": table})
    return tmp_path / "ward"


def test_sets_of_vectors_have_the_columns_of_the_run_in_its_order(ward: Path) -> None:
    sets = load_unlabeled_sets(ward, WELL, 2, (3,), table=KNOWN)
    assert sets.inputs.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0], [20, 0, 1], [25, 1, 0]]
    assert sets.inputs.dtype == np.float32
    assert sets.sets.tolist() == [0, 0, 0, 1, 1]
    assert not sets.inputs.flags.writeable


def test_missing_values_are_filled_by_all_sets_of_the_owner(ward: Path) -> None:
    (ward / "january.csv").write_text(CSV.replace("40", ""))
    with refuses("cell-not-a-number", OwnDataError):
        load_unlabeled_sets(ward, WELL, 2, (3,), table=KNOWN)
    table = TableOptions("mean", columns=COLUMNS)
    sets = load_unlabeled_sets(ward, WELL, 2, (3,), table=table)
    assert sets.inputs[1, 0] == (30 + 50 + 20 + 25) / 4


def test_given_a_fill_in_the_columns_file_then_it_fills_at_every_owner(ward: Path) -> None:
    (ward / "january.csv").write_text(CSV.replace("40", "").replace("m,", "NA,"))
    known = Columns((Column("age", fill=44.0), Column("sex", ("f", "m"), fill="m")))
    for missing in ("refuse", "mean"):
        table = TableOptions(missing, columns=known)  # type: ignore[arg-type]
        sets = load_unlabeled_sets(ward, WELL, 2, (3,), table=table)
        assert sets.inputs[1].tolist() == [44, 0, 1]


def test_vectors_without_names_need_only_the_length(ward: Path) -> None:
    np.savez(ward / "january.npz", vectors=np.ones((2, 3)), labels=np.array([None, None]))
    (ward / "january.csv").unlink()
    (ward / "february.parquet").unlink()
    np.savez(ward / "february.npz", vectors=np.zeros((1, 3), np.float32))
    sets = load_unlabeled_sets(ward, WELL, 2, (3,))
    assert sets.inputs.tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    with refuses("points-of-another-kind", OwnDataError):
        load_unlabeled_sets(ward, WELL, 2, (4,))


def test_partly_labeled_vectors_have_labels_by_row_in_another_order(tmp_path: Path) -> None:
    folder = tmp_path / "points"
    folder.mkdir()
    (folder / "patients.csv").write_text(CSV)
    (folder / "labels.csv").write_text("name,label\n0,ill\n2,well\n")
    found = load_partly_labeled(folder, WELL, (3,), table=KNOWN)
    by_age = {
        float(found.inputs[point, 0]): int(label)
        for point, label in zip(found.points, found.labels, strict=True)
    }
    assert by_age == {30.0: 1, 40.0: -1, 50.0: 0}
    assert sorted(found.names) == ["0", "1", "2"]
