"""A data owner's sets and images: exact pixels, labels never read, refusals in one sentence."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedul_flwr.data import decode
from fedul_flwr.data.local_data import load_unlabeled_sets
from tests.data.conftest import pixels, png, write_parquet, write_png

NAMES = ("cat", "dog")
SHAPE = (4, 4, 1)
PRIORS = "set,dog,cat\nyoung,0.25,0.75\nold,1,0\nother,0.5,0.5\n"


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """Return a folder with a set of each form, 2 + 3 + 1 gray images of 4x4."""
    root = tmp_path / "clinic"
    root.mkdir()
    images = pixels(6, 4, 4)
    (root / "priors.csv").write_text(PRIORS)
    write_png(root / "young" / "b" / "1.png", images[1])
    write_png(root / "young" / "a.png", images[0])
    write_parquet(root / "old.parquet", [png(image) for image in images[2:5]])
    np.savez(root / "other.npz", images=images[5:])
    return root


def test_sets_in_the_order_of_the_csv_with_exact_pixels(owned: Path) -> None:
    sets = load_unlabeled_sets(owned, NAMES, 2, SHAPE)
    np.testing.assert_array_equal(sets.inputs[..., 0], pixels(6, 4, 4))
    assert sets.points.tolist() == [0, 1, 2, 3, 4, 5]
    assert sets.sets.tolist() == [0, 0, 1, 1, 1, 2]
    assert sets.set_sizes.tolist() == [2, 3, 1]
    # The columns dog, cat are put into the order of the model's classes: cat, dog.
    assert sets.priors.tolist() == [[0.75, 0.25], [0.0, 1.0], [0.5, 0.5]]
    assert sets.priors.dtype == np.float64
    assert not sets.inputs.flags.writeable


def test_new_images_alone_are_decoded(owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_unlabeled_sets(owned, NAMES, 2, SHAPE)
    with monkeypatch.context() as patch:
        patch.setattr(decode, "decode_image", None)  # whoever called it would fail
        (owned / "priors.csv").write_text(PRIORS.replace("0.25,0.75", "0.5,0.5"))
        assert load_unlabeled_sets(owned, NAMES, 2, SHAPE).priors[0].tolist() == [0.5, 0.5]
    write_png(owned / "young" / "a.png", np.full((4, 4), 7, np.uint8))
    write_png(owned / "young" / "c.png", np.full((4, 4), 9, np.uint8))
    sets = load_unlabeled_sets(owned, NAMES, 2, SHAPE)
    assert sets.inputs[[0, 2], 0, 0, 0].tolist() == [7, 9]
    assert sets.set_sizes.tolist() == [3, 3, 1]


def test_images_are_brought_to_the_models_shape(owned: Path) -> None:
    rgb = load_unlabeled_sets(owned, NAMES, 2, (6, 5, 3)).inputs
    assert rgb.shape == (6, 6, 5, 3)
    for row in range(6):
        image = Image.fromarray(pixels(6, 4, 4)[row]).convert("RGB")
        expected = image.resize((5, 6), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(rgb[row], np.asarray(expected))
    write_png(owned / "young" / "a.png", pixels(1, 4, 4, 3)[0])
    gray = load_unlabeled_sets(owned, NAMES, 2, SHAPE).inputs
    expected = Image.fromarray(pixels(1, 4, 4, 3)[0]).convert("L")
    np.testing.assert_array_equal(gray[0, ..., 0], np.asarray(expected))


def test_hidden_files_are_no_sets(owned: Path) -> None:
    (owned / ".hidden").write_text("left by a desktop")
    assert len(load_unlabeled_sets(owned, NAMES, 2, SHAPE).names) == 3
