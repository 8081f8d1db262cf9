"""experiments/covid_hospitals.py on made-up images: who holds what, and who can read it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets
from tests.data.conftest import png, write_parquet
from tests.support.files_of_code import module_of_file

ROOT = Path(__file__).parents[2]
NAMES = ["none", "covid", "other"]
SHAPE = (8, 8, 1)


script = module_of_file(ROOT / "experiments" / "covid_hospitals.py")


def image_of(label: int, number: int) -> bytes:
    """An image that no other has: its number is in two pixels, its class in a third."""
    pixels = np.zeros(SHAPE[:2], dtype=np.uint8)
    pixels[0, :3] = number // 256, number % 256, label
    return png(pixels)


def write(path: Path, patients: list[str], first: int, rng: np.random.Generator) -> None:
    label_of = {patient: int(rng.choice(3, p=[0.5, 0.15, 0.35])) for patient in set(patients)}
    labels = [label_of[patient] for patient in patients]
    images = [image_of(label, first + row) for row, label in enumerate(labels)]
    write_parquet(path, images, {"label": labels, "group_id": patients}, names=NAMES)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("covid")
    rng = np.random.default_rng(0)
    of_train = [f"p{rng.integers(500)}" for _ in range(900)]
    write(place / "train.parquet", of_train, 0, rng)
    write(place / "test.parquet", [f"t{row // 2}" for row in range(60)], 900, rng)
    script.write_hospitals(place, place / "covid-hospitals")
    return place / "covid-hospitals"


def folders(hospitals: Path, name: str) -> list[Path]:
    return sorted((hospitals / name).iterdir())


def numbers(images: np.ndarray[Any, Any]) -> list[int]:
    return (256 * images[:, 0, 0, 0].astype(int) + images[:, 0, 1, 0]).tolist()


def test_given_as_many_patients_as_places_then_each_place_has_one_of_each_class() -> None:
    # The rarest class, 1, goes first: one of its patients to each place; then classes 2 and 0.
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    patients = ["a", "a", "a", "b", "b", "b", "c", "d", "e", "e", "f", "f"]
    for rows in script.deal_patients(labels, patients, 2, seed=3):
        np.testing.assert_array_equal(np.bincount(labels[rows]), [3, 1, 2])


def test_given_few_labels_then_each_hospital_has_five_of_each_class(hospitals: Path) -> None:
    for file in hospitals.glob("*-hospitals-*/*/*.parquet"):
        assert pq.read_schema(file).names == ["image"]  # and no label
    few = folders(hospitals, "10-hospitals-few")
    assert len(few) == 10
    for folder in few:
        data = load_partly_labeled(folder, NAMES, SHAPE)
        known = data.labels >= 0
        np.testing.assert_array_equal(np.bincount(data.labels[known], minlength=3), [5, 5, 5])
        np.testing.assert_array_equal(data.inputs[data.points[known]][:, 0, 2, 0],
                                      data.labels[known])  # fmt: skip
        everything = load_partly_labeled(hospitals / "10-hospitals-all" / folder.name, NAMES, SHAPE)
        assert sorted(numbers(data.inputs)) == sorted(numbers(everything.inputs))
        assert (everything.labels >= 0).all()


@pytest.mark.parametrize("count", [6, 12])
def test_given_sets_then_their_class_shares_are_in_the_file(hospitals: Path, count: int) -> None:
    places = folders(hospitals, f"5-hospitals-sets-{count}")
    assert len(places) == 5
    for folder in places:
        sets = load_unlabeled_sets(folder, NAMES, 3, SHAPE)
        assert sets.priors.shape == (count, 3)
        for number, shares in enumerate(sets.priors):
            inside = sets.inputs[sets.points[sets.sets == number]]
            counts = np.bincount(inside[:, 0, 2, 0], minlength=3)
            np.testing.assert_allclose(counts / counts.sum(), shares, atol=1e-12)
        everything = load_partly_labeled(hospitals / "5-hospitals-all" / folder.name, NAMES, SHAPE)
        assert sorted(numbers(sets.inputs)) == sorted(numbers(everything.inputs))


def test_given_a_patient_in_training_and_test_images_then_it_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write(tmp_path / "train.parquet", ["a", "b"], 0, rng)
    write(tmp_path / "test.parquet", ["b", "c"], 2, rng)
    with pytest.raises(ValueError, match="1 patients"):
        script.write_hospitals(tmp_path, tmp_path / "out")
