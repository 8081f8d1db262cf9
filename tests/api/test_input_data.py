"""Data in memory become a data set on disk with the same points, labels and classes."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from fedul_flwr.api.arguments import flat_settings
from fedul_flwr.api.input_data import CLIENT, dataset_of
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


class Listed(Dataset[Any]):
    """A data set of torch with these points, as torchvision's without a transform."""

    def __init__(self, points: list[Any]) -> None:
        self.points = points

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Any:
        return self.points[index]


@pytest.mark.parametrize(
    "data",
    [
        (IMAGES, LABELS),
        (IMAGES / 255, LABELS.tolist()),
        (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(LABELS)),
        (IMAGES.transpose(0, 3, 1, 2), LABELS),
        TensorDataset(torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(LABELS)),
        Listed([(Image.fromarray(i), int(k)) for i, k in zip(IMAGES, LABELS, strict=True)]),
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


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32])
def test_given_whole_numbers_of_any_type_from_0_to_255_then_they_are_pixels(dtype: Any) -> None:
    check_images(dataset_of((IMAGES.astype(dtype), LABELS)))


@pytest.mark.parametrize(
    "images",
    [
        IMAGES.astype(np.float32) / 127.5 - 1,  # normalized, as transforms.Normalize does
        IMAGES.astype(np.int64) * 2,
        IMAGES.astype(np.uint16),  # may be dark values of 16 bits
        IMAGES[..., 0].astype(np.float32)[:, :, :2] / 255,  # (n, T, C): a series or gray images?
    ],
)
def test_given_values_of_no_known_range_then_they_are_refused(images: NDArray[Any]) -> None:
    with refuses("array-wrong"):
        dataset_of((images, LABELS))


class Drawn(Listed):
    """A data set of torch that turns half of its points over, anew each time that it is read."""

    def __getitem__(self, index: int) -> Any:
        point, label = self.points[index]
        return (point.flip(0) if torch.rand(()) < 0.5 else point), label


def test_given_a_random_transform_then_a_data_set_of_torch_is_refused() -> None:
    points = [(torch.rand(3, 8, 8), label) for label in LABELS.tolist()]
    load_source(dataset_of(Listed(points)))
    with refuses("data-not-readable"):
        dataset_of(Drawn(points))


def test_given_clients_of_any_type_then_each_value_is_a_client() -> None:
    days = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"] * 10))
    large = np.array([0.0, 1e19] * 10)
    for clients in (days, large, np.array([0, 2**63], np.uint64).repeat(10)):
        run = load_source(dataset_of((VECTORS, LABELS), clients=clients))
        assert len(np.unique(run.train.columns[CLIENT])) == 2


def test_given_a_number_beyond_float64_then_it_is_refused() -> None:
    numbers = np.array([[10**400, 1]] * 20, dtype=object)
    for data in ((numbers, LABELS), (pd.DataFrame(numbers), LABELS)):
        with refuses("cell-not-a-number"):
            dataset_of(data)


def test_given_names_of_classes_then_a_data_set_of_hugging_face_keeps_them() -> None:
    features = datasets.Features(
        {
            "v": datasets.Sequence(datasets.Value("float32")),
            "label": datasets.ClassLabel(2, ["a", "b"]),
        }
    )
    data = datasets.Dataset.from_dict({"v": VECTORS, "label": LABELS}, features=features)
    both = datasets.DatasetDict({"train": data, "test": data})
    source = load_source(dataset_of(both))
    assert source.class_names == ("a", "b")
    np.testing.assert_array_equal(source.train.inputs, VECTORS)


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


def test_given_a_name_for_each_point_then_torch_frames_and_arrays_have_the_same_classes() -> None:
    names = np.array(["no", "yes"])[LABELS]
    points = torch.from_numpy(VECTORS)
    torch_data = [(point, name) for point, name in zip(points, names, strict=True)]
    for data in (
        (VECTORS, names),
        (pd.DataFrame(VECTORS), names),
        (points.clone().requires_grad_(), names),
        ([point.clone().requires_grad_() for point in points], names),
        (VECTORS.astype(object), names),
        (np.asfortranarray(VECTORS), names),
        Listed(torch_data),
    ):
        source = load_source(dataset_of(data))
        assert source.class_names == ("no", "yes")
        rows = [*source.train.inputs, *source.test.inputs]
        assert sorted_rows(rows) == sorted_rows(VECTORS)


def test_given_pictures_by_path_then_the_data_set_has_their_pixels(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{n}.png") for n in range(len(IMAGES))]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image).save(path)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": paths, "label": LABELS}, features=features)
    check_images(dataset_of(data))
    check_images(dataset_of(data.cast_column("image", datasets.Image(decode=False))))
    check_images(dataset_of(data.with_format("torch")))
    with refuses("data-not-readable"):
        dataset_of(data.with_transform(lambda batch: batch))
    with refuses("data-not-readable"):
        dataset_of(data.to_iterable_dataset())
    texts = datasets.Dataset.from_dict({"image": paths, "label": LABELS})
    with refuses("column-type"):
        load_source(dataset_of(texts))
    Path(paths[0]).unlink()
    with refuses("file-missing"):
        dataset_of(data)


def test_given_masked_values_then_they_are_missing_and_not_what_lies_under_the_mask() -> None:
    gaps = np.eye(20, 2, dtype=bool)
    values = np.where(gaps, 1e6, np.arange(40.0).reshape(20, 2))
    x = np.ma.masked_array(values, mask=gaps)
    for data in (x, list(x)):
        with refuses("cell-not-a-number"):
            load_source(dataset_of((data, LABELS)))
        source = load_source(dataset_of((data, LABELS)), table=TableOptions(missing="mean"))
        rows = np.concatenate([source.train.inputs, source.test.inputs])
        assert set(sorted_rows(values[2:].astype(np.float32))) < set(sorted_rows(rows))
        assert rows.max() == 39


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
    # Nothing is split off beside test data, whose columns are matched by name.
    source = load_source(dataset_of((frame, LABELS), (FRAME[["c", "a", "b"]], LABELS)))
    np.testing.assert_array_equal(source.train.inputs, VECTORS)
    np.testing.assert_array_equal(source.test.inputs, VECTORS)
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
        (3, None, "data-not-readable"),
        ((VECTORS, LABELS[:3]), None, "points-and-labels-differ"),
        ((IMAGES.astype(float), LABELS), None, "array-wrong"),
        ((np.array([["a"]]), [0]), None, "array-wrong"),
        ((np.zeros((2, 2, 2, 2)), [0, 1]), None, "array-wrong"),
        ((VECTORS, LABELS + 0.5), None, "labels-wrong"),
        ((VECTORS[:2], [0, 1]), None, "too-few-points"),
        (pd.DataFrame({"a": [], "label": []}), None, "too-few-points"),
        ((FRAME, LABELS), (FRAME.rename(columns={"a": "z"}), LABELS), "columns-differ"),
        ((FRAME, LABELS), (VECTORS, LABELS), "splits-differ"),
        ((FRAME.assign(a=[1, "x"] * 10), LABELS), None, "column-type"),
        ((FRAME, pd.Series(LABELS, index=FRAME.index[::-1])), None, "points-and-labels-differ"),
        ((VECTORS.astype(float) * 1e39, LABELS), None, "cell-not-a-number"),
        (([VECTORS[0]] * 19 + [VECTORS[0, :2]], LABELS), None, "data-not-readable"),
        ((VECTORS, [None] * 20), None, "too-few-points"),
    ],
)
def test_given_data_that_cannot_be_used_then_they_are_refused(
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


@pytest.mark.parametrize("kind", ["arrays", "frame", "hub"])
def test_given_the_client_of_each_point_then_a_column_beside_the_features_has_it(kind: str) -> None:
    clients = np.tile(["b", "a"], 10)
    data: Any = (VECTORS, LABELS)
    frame = pd.DataFrame(VECTORS, columns=["x", "y", "z"]).assign(label=LABELS)
    if kind != "arrays":
        data = frame if kind == "frame" else datasets.Dataset.from_pandas(frame)
    dataset = dataset_of(data, clients=clients)
    source = load_source(dataset, table=TableOptions(group=CLIENT))
    assert source.input_shape == (3,)
    for row, client in zip(source.train.inputs, source.train.columns[CLIENT], strict=True):
        [place] = np.flatnonzero((row == VECTORS).all(axis=1))
        assert client == clients[place]


@pytest.mark.parametrize(
    ("clients", "code"),
    [
        (pd.Series([0, 1] * 10, index=range(19, -1, -1)), "points-and-labels-differ"),
        (np.zeros(19), "clients-of-points"),
        ([None, *range(19)], "clients-of-points"),
        (range(20), "too-few-points"),
    ],
)
def test_clients_that_cannot_be_used_are_refused(clients: Any, code: str) -> None:
    with refuses(code):
        dataset_of((FRAME, LABELS), clients=clients)
