"""Data in memory become a data set on disk with the same points, labels and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from fedul_flwr.api.input_data import dataset_of
from fedul_flwr.api.keywords import flat_settings
from fedul_flwr.data.cache import cache_directory, clear_cache, measure_cache
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import TableOptions
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 4, 5, 3), dtype=np.uint8)
LABELS = np.repeat([0, 1], 10)
VECTORS = RNG.normal(size=(20, 3)).astype(np.float32)


def sorted_rows(inputs: Any) -> list[bytes]:
    return sorted(np.asarray(row).tobytes() for row in inputs)


def check_images(dataset: str) -> None:
    """All images are there, a fifth of each class in the test split."""
    source = load_source(dataset)
    assert len(source.train.inputs) == 16
    assert np.bincount(np.asarray(source.test.labels)).tolist() == [2, 2]
    assert sorted_rows([*source.train.inputs, *source.test.inputs]) == sorted_rows(IMAGES)
    for inputs, label in zip(source.train.inputs, source.train.labels, strict=True):
        [place] = np.flatnonzero((inputs == IMAGES).all(axis=(1, 2, 3)))
        assert LABELS[place] == label


class Pictures(Dataset[Any]):
    """As torchvision's data sets without a transform."""

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(IMAGES[index]), int(LABELS[index])


@pytest.mark.parametrize(
    "data",
    [
        (IMAGES, LABELS),
        (IMAGES / 255, LABELS.tolist()),
        (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(LABELS)),
        (IMAGES.transpose(0, 3, 1, 2), LABELS),
        TensorDataset(torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(LABELS)),
        Pictures(),
        datasets.Dataset.from_dict(
            {"image": [Image.fromarray(image) for image in IMAGES], "label": LABELS},
            features=datasets.Features(
                {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
            ),
        ),
    ],
    ids=["uint8", "float", "tensor", "channels first", "TensorDataset", "pictures", "Hugging Face"],
)
def test_given_images_in_any_form_then_the_data_set_has_their_pixels_and_labels(data: Any) -> None:
    check_images(dataset_of(data))


def test_given_texts_as_labels_then_they_name_the_classes_and_none_is_no_label() -> None:
    labels = np.array(["ill", "sound", None, "ill"] * 5, dtype=object)
    source = load_source(dataset_of((VECTORS, labels)))
    assert source.class_names == ("ill", "sound")
    # Ten are ill and five sound, of which a fifth is in the test split; -1 stays in training.
    assert np.bincount(np.asarray(source.train.labels) + 1).tolist() == [5, 8, 4]


def test_given_a_frame_then_columns_and_categories_are_those_of_the_table() -> None:
    frame = pd.DataFrame(VECTORS, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(["x", "y"] * 10)
    source = load_source(dataset_of((frame, LABELS)))
    assert source.columns is not None
    assert source.columns.names == ("a", "b", "c", "kind")
    assert source.input_shape == (5,)
    named = frame.assign(sickness=["ill" if y else "sound" for y in LABELS])
    options = TableOptions(label="sickness")
    source = load_source(dataset_of(named, label_column="sickness"), table=options)
    assert source.class_names == ("ill", "sound")


def test_given_test_data_then_nothing_is_split_off() -> None:
    source = load_source(dataset_of((VECTORS, LABELS), (VECTORS[:3], LABELS[:3])))
    np.testing.assert_array_equal(source.train.inputs, VECTORS)
    np.testing.assert_array_equal(source.test.inputs, VECTORS[:3])


def test_given_the_same_data_twice_then_they_lie_on_disk_once_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    first, other = dataset_of((VECTORS, LABELS)), dataset_of((VECTORS.copy(), LABELS))
    assert first == other
    assert dataset_of((VECTORS + 1, LABELS)) != first
    folder = Path(first)
    assert folder.is_relative_to(cache_directory())
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert measure_cache().entries == 2
    clear_cache()
    assert not folder.exists()


FRAME = pd.DataFrame(VECTORS.astype(np.float64), columns=["a", "b", "c"])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.astype(pd.SparseDtype(float)),
        FRAME.astype("Float64"),
        FRAME.astype(object),
        FRAME.astype(pd.ArrowDtype(pa.float64())),
        FRAME.set_index(pd.Index(range(20, 0, -1), name="key")),
        pa.table({name: FRAME[name] for name in FRAME}),
    ],
    ids=["sparse", "Float64", "object", "Arrow", "with an index", "table of Arrow"],
)
def test_given_a_frame_of_any_type_of_numbers_then_its_vectors_are_the_same(frame: Any) -> None:
    source = load_source(dataset_of((frame, LABELS), (FRAME, LABELS)))
    np.testing.assert_array_equal(source.train.inputs, VECTORS)
    assert source.columns is not None
    assert source.columns.features == ("a", "b", "c")


def test_given_categories_intervals_and_sparse_dummies_then_features_are_those_by_hand() -> None:
    sizes = pd.Series([1.0, 2.0] * 10)
    frame = pd.DataFrame({"grade": pd.Categorical([1, 2] * 10), "size": pd.cut(sizes, [0, 1, 2])})
    frame = frame.join(pd.get_dummies(pd.Series(["u", "v"] * 10), sparse=True))
    source = load_source(dataset_of((frame, LABELS), (frame, LABELS)))
    assert source.columns is not None
    assert source.columns.features == (
        *("grade=1", "grade=2", "size=(0, 1]", "size=(1, 2]"),
        *("u", "v"),
    )
    assert source.train.inputs[:2].tolist() == [[1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("data", "test", "code"),
    [
        ((FRAME, LABELS), (FRAME.rename(columns={"a": "z"}), LABELS), "columns-differ"),
        ((FRAME, LABELS), (VECTORS, LABELS), "splits-differ"),
        ((FRAME.assign(a=pd.Period("2024-01")), LABELS), None, "column-of-dates"),
        ((FRAME.assign(a=[1, "x"] * 10), LABELS), None, "column-type"),
        ((FRAME, pd.Series(LABELS, index=FRAME.index[::-1])), None, "points-and-labels-differ"),
        ((VECTORS, [None] * 20), None, "labels-missing"),
        (3, None, "data-not-readable"),
        ((VECTORS, LABELS[:3]), None, "points-and-labels-differ"),
        ((IMAGES.astype(float), LABELS), None, "points-type"),
        ((np.zeros((2, 2, 2, 2)), [0, 1]), None, "points-shape"),
        ((VECTORS, LABELS + 0.5), None, "labels-wrong"),
        ((VECTORS[:2], [0, 1]), None, "too-few-points"),
        (pd.DataFrame({"a": [1.0]}), None, "column-missing"),
    ],
)
def test_given_frames_or_arrays_that_do_not_fit_then_a_sentence_says_why(
    data: Any, test: Any, code: str
) -> None:
    with refuses(code):
        load_source(dataset_of(data, test))


def test_given_keywords_then_settings_have_the_names_of_the_command_line() -> None:
    found = flat_settings(
        {
            "local_epochs": np.int64(1),
            "fedul": {"num_sets": 5},
            "test_prior": [0.75, 0.25],
            "start_from": Path("runs/a"),
            "model": None,
        }
    )
    assert found == {
        "local-epochs": 1,
        "fedul.num-sets": 5,
        "test-prior": "0.75,0.25",
        "start-from": "runs/a",
    }


@pytest.mark.parametrize(
    ("clients", "code"),
    [
        (np.zeros(19), "clients-of-points"),
        ([None, *range(19)], "clients-of-points"),
        (range(20), "too-few-points"),
    ],
)
def test_clients_that_cannot_be_used_are_refused(clients: Any, code: str) -> None:
    with refuses(code):
        dataset_of((VECTORS, LABELS), clients=clients)
