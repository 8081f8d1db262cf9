"""Measures of whole runs: of saved models, with and without temperature and estimated priors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn import metrics as sk

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.learning.calibration import fit_temperature
from fedul_flwr.learning.local import dump_arrays, load_arrays
from fedul_flwr.models import build_model
from fedul_flwr.results.facts import print_summary, summary_rows
from fedul_flwr.results.predict import load_model
from fedul_flwr.run.evaluation import Errors, Evaluator
from fedul_flwr.run.measures import measures
from tests.support.refusals import refuses
from tests.support.runs import (
    MeddlingGrid,
    assert_same_arrays,
    is_train,
    last_model,
    metrics,
    summary,
    train,
)
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "method": "supervised", "num_rounds": 2, "local_epochs": 1},
    "precision": "float32",
}
SHARES = (0.03, 0.05, 0.11, 0.02, 0.11, 0.67, 0.01)


def measures_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "measures.json").read_text())
    return found


def logits_of(directory: Path, file: str, inputs: NDArray[Any]) -> NDArray[np.float64]:
    """Outputs of a saved model, up to a constant of each point."""
    predictor = load_model(directory)
    load_arrays(predictor.model, load_arrays_of(directory / file)[0])
    return np.asarray(np.log(replace(predictor, temperature=1.0).predict_proba(inputs)))


def lesions(folder: Path) -> str:
    """Seven classes of six pixels, of which one has 67 % of the points."""
    rng = np.random.default_rng(0)
    centers = rng.integers(60, 196, (7, 6))
    folder.mkdir()
    for split, count in (("train", 900), ("test", 400)):
        labels = np.repeat(np.arange(7), np.round(count * np.array(SHARES)).astype(int))
        pixels = centers[labels] + 40 * rng.standard_normal((len(labels), 6))
        images = pixels.round().clip(0, 255).astype(np.uint8).reshape(-1, 2, 3, 1)
        np.savez(folder / f"{split}.npz", images=images, labels=labels)
    return str(folder)


def agrees(found: dict[str, Any], probabilities: NDArray[np.float64], labels: Any) -> None:
    expected = measures(probabilities, labels)
    for key in ("points", "error", "balanced_accuracy", "auc", "nll", "ece"):
        assert found[key] == pytest.approx(expected[key], rel=1e-3), key
    for key in ("recall", "precision"):  # None of what does not occur
        one, other = (np.array(each[key], dtype=float) for each in (found, expected))
        np.testing.assert_allclose(one, other)


def test_given_a_run_then_its_measures(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, rounds = Evaluator.errors, iter(range(2))

    def first_is_best(evaluator: Evaluator, models: Any, prior: Any) -> Errors:
        return {**measure(evaluator, models, prior), "validation_error": float(next(rounds))}

    monkeypatch.setattr(Evaluator, "errors", first_is_best)
    directory = train(settings(**QUICK, calibration="validation"), 2)
    found, test = summary(directory), load_source("digits").test
    inputs, labels = np.asarray(test.inputs), np.asarray(test.labels)
    best, last = (logits_of(directory, f"{name}.safetensors", inputs) for name in ("model", "last"))
    temperature = found["temperature"]
    assert temperature != pytest.approx(1, abs=0.01)
    every = found["measures"]
    assert {key: one["round"] for key, one in every.items()} == {
        **{"best": 1, "unscaled": 1},
        "last": 2,
    }
    agrees(every["unscaled"], softmax(best, axis=1), labels)
    agrees(every["best"], softmax(best / temperature, axis=1), labels)
    agrees(every["last"], softmax(last, axis=1), labels)
    for key in ("balanced_accuracy", "auc", "ece", "nll", "brier"):
        assert found[key] == every["best"][key]
    assert every["best"]["error"] == found["test_error"] == every["unscaled"]["error"]
    assert every["last"]["error"] == found["final_test_error"]
    # What is predicted with the model is what was measured.
    predictor = load_model(directory)
    assert predictor.temperature == temperature
    agrees(every["best"], predictor.predict_proba(inputs), labels)
    matrix = measures_of(directory)["best"]["confusion"]
    np.testing.assert_array_equal(matrix, sk.confusion_matrix(labels, best.argmax(axis=1)))
    row = summary_rows(Run.read(directory))["measures"]
    assert row == (
        f"balanced accuracy {found['balanced_accuracy']:.2f} %, AUC {found['auc']:.3f}, ECE "
        f"{found['ece']:.2f} % ({every['unscaled']['ece']:.2f} % before temperature "
        f"{temperature:.2f})"
    )


def test_given_calibration_then_validation_points_tell(settings: Settings) -> None:
    config = settings(**QUICK, calibration="validation")
    directory = train(config, 2)
    source = load_source("digits")
    rows = build_split(source_directory("digits"), 2, config).validation
    logits = logits_of(directory, "model.safetensors", np.asarray(source.train.inputs)[rows])
    expected = fit_temperature(logits, np.asarray(source.train.labels)[rows])
    assert summary(directory)["temperature"] == pytest.approx(expected, rel=1e-3)
    assert (
        load_arrays_of(directory / "model.safetensors")[1]["temperature"]
        == (summary(directory)["temperature"])
    )
    # Weights are those of a run without it.
    plain = train(settings(**QUICK), 2)
    assert load_model(plain).temperature == 1
    assert_same_arrays(last_model(plain), last_model(directory))
    assert "unscaled" not in summary(plain)["measures"]


def test_given_clients_then_each_has_an_error_on_its_share_of_the_test_points(
    settings: Settings,
) -> None:
    found = summary(train(settings(**QUICK), 3))
    shares = found["test_error_by_share"]
    points = load_source("digits").test.labels
    sizes = [len(part) for part in np.array_split(points, 3)]
    assert len(set(shares)) > 1
    assert np.average(shares, weights=sizes) == pytest.approx(found["test_error"])


def test_given_estimated_priors_then_there_are_two(settings: Settings, tmp_path: Path) -> None:
    place = lesions(tmp_path / "lesions")
    options = {**QUICK, "method": "fedul", "num_rounds": 3, "fedul.num_sets": 12}
    config = settings(**options, dataset=place, test_prior="em")
    directory = train(config, 2)
    found, test = summary(directory), load_source(place).test
    inputs, labels = np.asarray(test.inputs), np.asarray(test.labels)
    predictor = load_model(directory)
    every = found["measures"]
    agrees(every["best"], predictor.predict_proba(inputs), labels)
    again = predictor.predict_proba(inputs, priors=found["test_prior_estimate"])
    agrees(every["reweighed"], again, labels)
    assert every["reweighed"]["error"] == found["test_error_reweighed"]
    assert every["reweighed"]["nll"] < every["best"]["nll"]  # which assumes uniform priors
    row = summary_rows(Run.read(directory))["re-weighed"]
    assert f"; balanced accuracy {every['reweighed']['balanced_accuracy']:.2f} %, AUC " in row


# Selection by balanced error


def test_given_unbalanced_points_classes_count_alike(settings: Settings, tmp_path: Path) -> None:
    """A model that names the frequent class alone has the least error over all points."""
    place = lesions(tmp_path / "lesions")
    options = {**QUICK, "method": "fedul", "num_rounds": 4, "dataset": place}
    directory = train(settings(**options, **{"fedul.num-sets": 14}), 2)
    lines = metrics(directory)
    for line in lines:
        assert line["validation_prior_error"] == pytest.approx(line["validation_balanced_error"])
    best = min(lines, key=lambda line: float(line["validation_prior_error"]))
    found = summary(directory)
    assert found["best_round"] == best["round"]
    assert found["validation_prior_error"] == best["validation_prior_error"]


def test_given_balanced_selection_then_the_round_of_least_balanced_error_is_kept_also_by_resuming(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lesions(tmp_path / "lesions")
    options = {**QUICK, "num_rounds": 4, "dataset": place, "selection": "balanced"}
    errors = iter([(10.0, 60.0), (20.0, 30.0), (5.0, 50.0), (30.0, 31.0)] * 2)

    def planned(evaluator: Evaluator, models: Any, prior: Any) -> Errors:
        overall, balanced = next(errors)
        return {"validation_error": overall, "validation_balanced_error": balanced}

    monkeypatch.setattr(Evaluator, "errors", planned)
    whole = train(settings(**options), 2)
    found = summary(whole)
    assert (found["best_round"], found["validation_balanced_error"]) == (2, 30.0)
    assert "(round 2 of 4, by balanced" in summary_rows(Run.read(whole))["test error"]
    assert load_arrays_of(whole / "model.safetensors")[1]["round"] == 2
    config = settings(**options)

    def cut_off(call: int, replies: list[Message]) -> list[Message]:
        if call == 5:  # describe, setup, three rounds
            raise UserError("cut off")
        return replies

    with refuses(""):
        train(config, 2, wrap_grid=lambda grid: MeddlingGrid(grid, cut_off))
    assert 0 < len(metrics(Path(config.output))) < 4
    resumed = train(resolve({"resume": config.output}, Path.cwd()), 2)
    assert summary(resumed)["best_round"] == 2
    assert metrics(resumed) == metrics(whole)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"selection": "balanced", "validation_fraction": 0.0}, "setting-needs-labels"),
        ({"calibration": "validation", "evaluate": "local"}, "settings-contradict"),
        ({"selection": "balanced", "fraction_evaluate": 0.5}, "setting-without-effect"),
    ],
)
def test_no_labels_are_refused(settings: Settings, options: dict[str, Any], code: str) -> None:
    with refuses(code):
        train(settings(**{**QUICK, **options}), 2)


# Warnings


def test_given_lesions_and_a_uniform_prior_then_shares_are_warned_of_once_and_in_the_summary(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = lesions(tmp_path / "lesions")
    options = {**QUICK, "method": "fedul", "fedul.num_sets": 12, "dataset": place}
    (warning, *_) = summary(train(settings(**options, test_prior="uniform"), 2))["warnings"]
    assert "class '5' has 67% of the" in warning
    assert "set test-prior if" in warning
    assert caplog.messages.count(warning) == 1
    given = ",".join(map(str, SHARES))
    found = summary(train(settings(**options, test_prior=given), 2))["warnings"]
    assert not any("Class shares differ" in warning for warning in found)


def test_given_a_model_that_names_one_class_then_the_end_of_the_run_says_so(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = lesions(tmp_path / "lesions")
    model = dump_arrays(build_model("mlp", (2, 3, 1), 7))
    arrays = {name: np.zeros_like(array) for name, array in model.items()}
    arrays[next(name for name, array in arrays.items() if array.shape == (7,))][5] = 1

    def always_nv(_: int, replies: list[Message]) -> list[Message]:
        for reply in replies if is_train(replies) else ():
            reply.content[ARRAYS] = ArrayRecord({n: Array(a) for n, a in arrays.items()})
        return replies

    directory = train(
        settings(**{**QUICK, "num_rounds": 1}, dataset=place),
        2,
        wrap_grid=lambda grid: MeddlingGrid(grid, always_nv),
    )
    (warning,) = summary(directory)["warnings"]
    assert warning.startswith("The model of round 1 predicts class '5' for 100% of the test points")
    assert summary(directory)["test_error"] == pytest.approx(33, abs=1)
    assert summary(directory)["balanced_accuracy"] == pytest.approx(100 / 7)
    capsys.readouterr()
    print_summary(directory)
    assert f"Warning: {warning}" in capsys.readouterr().out


# Without labels of the test set, as the trials of a search
