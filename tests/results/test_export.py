"""Exported models predict what the run's own model predicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedul_flwr.data.safe_files import save_arrays
from fedul_flwr.models import build_model
from fedul_flwr.results import export as exporting
from fedul_flwr.results.export import export
from fedul_flwr.results.predict import load_model
from tests.support.refusals import refuses
from tests.support.synthetic_results import write_json

CLASSES = ["zero", "one", "two"]


def write_run(place: Path, name: str, shape: tuple[int, ...], **settings: object) -> Path:
    """A finished run with a model of random weights."""
    place.mkdir()
    model = build_model(name, shape, 3, seed=3)  # type: ignore[arg-type]
    data = {"input_shape": list(shape), "num_classes": 3, "class_names": CLASSES}
    write_json(place / "config.json", {"settings": {"model": name, **settings}, "data": data})
    save_file(model.state_dict(), place / "model.safetensors")
    return place


def by_onnx(file: Path, points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"points": points})
    return np.asarray(found)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn-small", (8, 10, 3)), ("mlp", (5,)), ("tests.results.test_export:lstm", (8, 8, 1))],
)
def test_probabilities_are_the_runs(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", name, shape)
    file = export(run, trust_modules=True)
    assert file == run / "model.onnx"
    [entry] = pytest.importorskip("onnx").load(file).metadata_props
    assert (entry.key, json.loads(entry.value)) == ("class-names", CLASSES)
    generator = np.random.default_rng(5)
    for count in (1, 11):
        points = generator.integers(0, 256, (count, *shape)).astype(np.uint8)
        points = points if len(shape) > 1 else points.astype(np.float32) / 100
        expected = load_model(run, trust_modules=True).predict_proba(points)
        np.testing.assert_allclose(by_onnx(file, points), expected, atol=1e-5)


def test_given_a_temperature_then_it_divides_the_logits(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "mlp", (8, 8, 1))
    points = np.random.default_rng(1).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    plain = load_model(run).predict_proba(points)
    arrays = {
        k: v.numpy() for k, v in build_model("mlp", (8, 8, 1), 3, seed=3).state_dict().items()
    }
    save_arrays(run / "model.safetensors", arrays, {"temperature": 2.0})
    # softmax(z / 2) is proportional to the square root of softmax(z).
    expected = np.sqrt(plain) / np.sqrt(plain).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(by_onnx(export(run), points), expected, atol=1e-5)


def test_given_features_or_own_means_then_a_sentence_refuses(tmp_path: Path) -> None:
    own = write_run(tmp_path / "own", "mlp", (5,), standardize="owner")
    with refuses("model-unfit"):
        export(own)
    features = "tests.results.test_export:mean"
    on_features = write_run(tmp_path / "on", "mlp", (8, 8, 1), features=features)
    save_file(build_model("mlp", (1,), 3).state_dict(), on_features / "model.safetensors")
    with refuses("model-unfit"):
        export(on_features, trust_modules=True)
    assert not list(tmp_path.rglob("*.onnx"))


def lstm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Rows(shape, classes)


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.width = shape[1]
        self.read, self.last = nn.LSTM(self.width, 16, batch_first=True), nn.Linear(16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows, _ = self.read(images.reshape(len(images), -1, self.width))
        return self.last(rows[:, -1])  # type: ignore[no-any-return]


def mean(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A feature: the mean of an image."""
    return images.reshape(len(images), -1).mean(axis=1, keepdims=True).astype(np.float32)


def test_other_numbers_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", "mlp", (8, 8, 1))
    right = exporting._onnx

    def wrong(model: exporting.WholeModel, *rest: Any) -> bytes:
        model.temperature *= 2
        return right(model, *rest)

    monkeypatch.setattr(exporting, "_onnx", wrong)
    with refuses("export-differs"):
        export(run)
    assert not (run / "model.onnx").exists()
