import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file

from fedul_flwr.api.result import TrainedModel
from fedul_flwr.data.safe_files import save_arrays
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.calibration import MARGINS
from fedul_flwr.models import build_model
from fedul_flwr.results.predict import load_model, predict
from tests.support.refusals import refuses
from tests.support.synthetic_results import write_json

CLASSES = ("zero", "one, or so", "2")


@pytest.fixture
def model() -> torch.nn.Module:
    return build_model("mlp", (8, 8, 1), 3, seed=3)


@pytest.fixture
def run(tmp_path: Path, model: torch.nn.Module) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    _write_config(directory, "mlp")
    save_file(model.state_dict(), directory / "model.safetensors")
    return directory


def _write_config(directory: Path, model: str, **data: object) -> None:
    shape = {"input_shape": [8, 8, 1], "num_classes": 3, "class_names": list(CLASSES)}
    write_json(directory / "config.json", {"settings": {"model": model}, "data": shape | data})


@pytest.fixture
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, size=(7, 8, 8, 1), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path, images: NDArray[np.uint8]) -> Path:
    directory = tmp_path / "my.images"
    directory.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image[..., 0]).save(directory / f"{number}.png")
    return directory


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _expected(model: torch.nn.Module, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    model.eval()
    with torch.no_grad():
        logits = model(to_input(torch.from_numpy(images)))
    result: NDArray[np.float64] = logits.double().softmax(dim=1).numpy()
    return result


def test_predicts_as_model(run: Path, model: torch.nn.Module, images: NDArray[np.uint8]) -> None:
    predictor = load_model(run)
    expected = _expected(model, images)
    for batch_size in (1, 3, 7, 256):
        found = predictor.predict_proba(images, batch_size)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    labels = predictor.predict(images)
    assert labels.dtype == np.int64
    assert labels.tolist() == expected.argmax(axis=1).tolist()
    assert predictor.predict_proba(images[:0]).shape == (0, 3)
    assert not predictor.model.training


def test_csv_of_a_folder(
    run: Path,
    model: torch.nn.Module,
    folder: Path,
    images: NDArray[np.uint8],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = predict(run, folder, batch_size=2)
    assert path == Path("my.images-predictions.csv")
    rows = _rows(path)
    assert list(rows[0]) == ["name", "label", "class", "confidence", *(f"p_{c}" for c in CLASSES)]
    assert [row["name"] for row in rows] == [f"{number}.png" for number in range(7)]
    for row, expected in zip(rows, _expected(model, images), strict=True):
        assert int(row["label"]) == expected.argmax()
        assert row["class"] == CLASSES[expected.argmax()]
        assert float(row["confidence"]) == pytest.approx(expected.max(), rel=1e-4)
        found = [float(row[f"p_{name}"]) for name in CLASSES]
        assert found == pytest.approx(expected.tolist(), rel=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "my.images",
        "my.images-predictions.csv",
        "run",
    ]


TRAINED = [0.5, 0.3, 0.2]


@pytest.fixture
def finished(run: Path) -> Path:
    write_json(run / "summary.json", {"test_prior": TRAINED})
    return run


def test_priors_reweigh(
    finished: Path, model: torch.nn.Module, images: NDArray[np.uint8], folder: Path
) -> None:
    predictor = load_model(finished)
    plain = _expected(model, images)
    joint = plain * np.array([0.1, 0.1, 0.8]) / np.array(TRAINED)
    expected = joint / joint.sum(axis=1, keepdims=True)
    found = predictor.predict_proba(images, priors=[0.1, 0.1, 0.8])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    labels = predictor.predict(images, priors=[0.1, 0.1, 0.8])
    assert labels.tolist() == expected.argmax(axis=1).tolist()
    assert labels.tolist() != plain.argmax(axis=1).tolist()  # the priors were far enough off
    np.testing.assert_allclose(predictor.predict_proba(images, priors=TRAINED), plain, rtol=1e-5)
    rows = _rows(predict(finished, folder, finished / "out.csv", priors="0.1,0.1,0.8"))
    assert [int(row["label"]) for row in rows] == labels.tolist()
    assert float(rows[0]["p_2"]) == pytest.approx(expected[0, 2], rel=1e-4)


def test_priors_are_estimated_and_printed(
    finished: Path, images: NDArray[np.uint8], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = load_model(finished)
    priors = predictor.estimate_priors(predictor.predict_proba(images))
    assert priors.sum() == pytest.approx(1)
    rows = _rows(predict(finished, folder, finished / "out.csv", priors="estimate"))
    named = ", ".join(f"{name} {p:.4f}" for name, p in zip(CLASSES, priors, strict=True))
    assert capsys.readouterr().out.endswith(f": {named}\n")
    expected = predictor.predict_proba(images, priors=priors)
    for row, probabilities in zip(rows, expected, strict=True):
        assert float(row["confidence"]) == pytest.approx(probabilities.max(), rel=1e-4)
    with refuses("class-priors-unknown"):
        predictor.estimate_priors(predictor.predict_proba(images[:0]))


def test_given_class_names_with_control_characters_then_a_terminal_is_told_none(
    finished: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((finished / "config.json").read_text())
    config["data"]["class_names"] = ["sound\x1b[2J", "ill\r\nReady.", "\u202eelse"]
    write_json(finished / "config.json", config)
    predict(finished, folder, finished / "out.csv", priors="estimate")
    printed = capsys.readouterr().out
    assert printed.startswith("Estimated class priors: sound")
    assert printed.rstrip("\n").isprintable()
    assert printed.count("\n") == 1


def test_what_the_model_was_trained_for(run: Path, images: NDArray[np.uint8]) -> None:
    assert load_model(run).priors is None
    for priors in ("estimate", "0.2,0.3,0.5"):
        with refuses("class-priors-unknown"):
            predict(run, run, priors=priors)
    # An unfinished run says it in its config, a finished one in its summary.
    _write_config(run, "mlp", test_prior=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(load_model(run).trained_priors(), [0.2, 0.3, 0.5])
    write_json(run / "summary.json", {"test_prior": TRAINED})
    predictor = load_model(run)
    np.testing.assert_allclose(predictor.trained_priors(), TRAINED)
    with refuses("class-priors-wrong"):
        predictor.predict(images, priors=[0.5, 0.3, 0.1])
    for wrong in ([0.5, 0.5], "uniform", [0, 0, 1]):
        write_json(run / "summary.json", {"test_prior": wrong})
        with refuses("run-file-wrong"):
            load_model(run)


def test_output_replaces_nothing_that_is_read(run: Path, folder: Path, tmp_path: Path) -> None:
    weights, first = run / "model.safetensors", sorted(folder.iterdir())[0]
    before = weights.read_bytes(), first.read_bytes()
    hard = tmp_path / "hard.png"
    hard.hardlink_to(first)
    for output in (weights, run / "config.json", first):
        with refuses("file-exists"):
            predict(run, folder, output)
    with refuses("file-exists"):
        predict(run, first, hard)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for output in (Path("/dev/stdout"), tmp_path / "circle"):
        with refuses("file-not-writable"):
            predict(run, folder, output)
    assert (weights.read_bytes(), first.read_bytes()) == before
    for _ in range(2):  # but an earlier result
        predict(run, folder, run / "predictions.csv")


@pytest.mark.parametrize("priors", ["0.5,0.5", "0.5,0.5,0", "guess"])
def test_priors_that_are_refused(finished: Path, folder: Path, priors: str) -> None:
    with refuses("class-priors-wrong"):
        predict(finished, folder, finished / "out.csv", priors=priors)
    assert not (finished / "out.csv").exists()


def test_refused_files(run: Path, folder: Path, images: NDArray[np.uint8], tmp_path: Path) -> None:
    for source, output, code in (
        (tmp_path / "missing", tmp_path / "out.csv", "file-missing"),
        (folder, tmp_path / "missing" / "out.csv", "file-not-writable"),
        (folder, tmp_path, "file-not-writable"),
    ):
        with refuses(code):
            predict(run, source, output)
    assert not (tmp_path / "out.csv").exists()
    for other in (images.astype(np.float64), images.repeat(3, axis=3)):
        with refuses("points-shape"):
            load_model(run).predict(other)


def test_runs_whose_model_cannot_open(run: Path, model: torch.nn.Module, tmp_path: Path) -> None:
    file, state = run / "model.safetensors", model.state_dict()
    for data in ({"input_shape": [8, 8]}, {"input_shape": None}, {"num_classes": "3"}):
        _write_config(run, "mlp", **data)
        with refuses("run-file-wrong"):
            load_model(run)
    _write_config(run, "mlp")
    save_file({"1.weight": state["1.weight"]}, file)
    with refuses("model-mismatch"):
        load_model(run)
    file.write_bytes(b"nonsense")
    with refuses("model-file-wrong"):
        load_model(run)
    file.unlink()
    with refuses("model-missing"):
        load_model(run)
    with refuses("run-missing"):
        load_model(tmp_path)


def test_given_a_temperature_with_the_model_then_logits_are_divided_by_it(
    run: Path, model: torch.nn.Module, images: NDArray[np.uint8]
) -> None:
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    save_arrays(run / "model.safetensors", arrays, {"round": 3, "temperature": 2.5})
    with torch.no_grad():
        logits = model.eval()(to_input(torch.from_numpy(images))).double()
    expected = (logits / 2.5).softmax(dim=1).numpy()
    np.testing.assert_allclose(load_model(run).predict_proba(images), expected, rtol=1e-6)
    for wrong in (0, -1.0, "warm", None, True):
        save_arrays(run / "model.safetensors", arrays, {"round": 3, "temperature": wrong})
        with refuses("run-file-wrong"):
            load_model(run)


def test_sets_have_the_classes_within_the_margin_of_the_first(
    run: Path, model: torch.nn.Module, images: NDArray[np.uint8], folder: Path, tmp_path: Path
) -> None:
    """Class 0 needs no margin for 90 %, class 1 one between the first two, and class 2 any."""
    with refuses("coverage-unknown"):
        predict(run, folder, tmp_path / "none.csv", coverage=0.9)
    coverage = np.ones((3, 1 + len(MARGINS)))
    coverage[1, :2], coverage[2] = [0.8, 1.0], 0.5
    about = {"coverage": coverage.tolist(), "temperature": 2.0}
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    save_arrays(run / "model.safetensors", arrays, about)
    rows = _rows(predict(run, folder, tmp_path / "sets.csv", coverage=0.9))
    with torch.inference_mode():
        logits = model(to_input(torch.from_numpy(images))).double().numpy()
    below = logits.max(axis=1, keepdims=True) - logits
    inside = below <= np.array([0.0, MARGINS[0] / 2, np.inf])
    names = [name for name, _ in zip(CLASSES, range(3), strict=True)]
    wanted = ["|".join(np.array(names)[row]) for row in inside]
    assert [row["set"] for row in rows] == wanted
    np.testing.assert_array_equal(TrainedModel(run).predict_sets(images), inside)
    with refuses("argument-not-allowed"):
        TrainedModel(run).predict_sets(images, 1.0)
    save_arrays(run / "model.safetensors", arrays, {"coverage": [[2.0]]})
    with refuses("run-file-wrong"):
        predict(run, folder, tmp_path / "none.csv")
