"""First weights by a user's function of the classes' names: a start without any label."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.run_config import resolve
from fedul_flwr.config.trusted_modules import named_modules
from fedul_flwr.data.types import Inputs
from fedul_flwr.results.predict import load_model
from fedul_flwr.run.server_data import open_server_data
from tests.support.refusals import refuses
from tests.support.runs import last_model, resume, summary, train
from tests.support.settings import Settings

START = {"model": "linear", "features": "encoder:of_points", "start-from": "encoder:of_names"}
NO_LABELS = {"labels.total": 0, "num-rounds": 1, "local-epochs": 1}


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Every point has the features (1, 2); the class "3" alone has weights above 0."""

    def of_points(points: Inputs) -> NDArray[np.float64]:
        return np.tile([1.0, 2.0], (len(points), 1))

    def of_names(names: list[str]) -> list[list[float]]:
        return [[float(name == "3"), 0.5 * (name == "3")] for name in names]

    module = ModuleType("encoder")
    module.of_points, module.of_names = of_points, of_names  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "encoder", module)
    return module


def test_given_no_label_then_a_run_starts_from_names_and_says_how_good_they_are(
    settings: Settings,
) -> None:
    config = settings(**START, **NO_LABELS, method="fixmatch", **{"fixmatch.threshold": 0.99})
    directory = train(config, 3)
    # Logits: 1·1 + 2·0.5 = 2 for class 3 and 0 for the nine others. So class 3 has the probability
    # e²/(e² + 9) = 0.45, no point reaches the threshold, and nothing is learned.
    bias, weights = last_model(directory).values()
    np.testing.assert_array_equal(weights, np.outer(np.arange(10) == 3, [1.0, 0.5]))
    np.testing.assert_array_equal(bias, np.zeros(10))
    source = open_server_data(config).source
    assert source is not None
    expected = 100 * np.mean(np.asarray(source.test.labels) != 3)
    assert summary(directory)["start_test_error"] == pytest.approx(expected)
    assert summary(directory)["test_error"] == pytest.approx(expected)
    (directory / "metrics.jsonl").write_text("")  # as if it had stopped before it evaluated round 1
    resume(directory, 3, **{"num-rounds": 2})
    assert summary(directory)["start_test_error"] == pytest.approx(expected)


def test_given_a_start_without_labels_then_pseudo_labels_train_the_model(
    settings: Settings,
) -> None:
    stages = {"method": "pseudo-label", "semi.labels-only-rounds": 0}
    directory = train(settings(**START, **NO_LABELS, **stages), 3)
    _, weights = last_model(directory).values()
    assert weights[3, 0] > 1  # every point got the label 3


def test_given_em_then_the_class_shares_of_test_points_are_estimated(settings: Settings) -> None:
    unsure = {**START, **NO_LABELS, "method": "fixmatch", "fixmatch.threshold": 0.99}
    config = settings(**unsure, **{"test-prior": "em"})
    directory = train(config, 3)
    # As above, each point has class 3 with e²/(e² + 9), for equal class shares. A point of
    # expectation maximization is a mean of the points' posteriors and of one pseudo point a class.
    likelihood = np.where(np.arange(10) == 3, np.exp(2), 1)
    prior = np.array(summary(directory)["test_prior_estimate"])
    source = open_server_data(config).source
    assert source is not None
    num_points = len(source.test.labels)
    posterior = prior * likelihood / (prior @ likelihood)
    np.testing.assert_allclose(prior, (num_points * posterior + 1) / (num_points + 10), atol=1e-4)
    assert prior[3] > 0.9
    np.testing.assert_array_equal(load_model(directory).trained_priors(), np.full(10, 0.1))
    with refuses("method-mismatch", setting="test-prior"):
        train(settings(method="fixmatch", **{"test-prior": "em"}), 3)


@pytest.mark.parametrize(
    "method",
    [
        {"method": "labels-only"},
        {"method": "xclp"},
        {"method": "fedsem", "semi.labels-only-rounds": 0},
        {"method": "pseudo-label", "semi.labels-only-rounds": 1},
    ],
)
def test_given_a_method_that_learns_from_labels_then_it_needs_one(
    settings: Settings, method: dict[str, object]
) -> None:
    with refuses("labels-missing"):
        train(settings(**START, **NO_LABELS, **method), 3)


@pytest.mark.parametrize(
    "rows", [np.zeros((10, 3)), np.zeros(10), np.full((10, 2), np.nan)], ids=str
)
def test_given_other_weights_than_a_row_for_each_class_then_the_run_is_refused(
    settings: Settings, encoder: ModuleType, rows: NDArray[np.float64]
) -> None:
    encoder.of_names = lambda names: rows  # type: ignore[attr-defined]
    with refuses("own-code-result", setting="start-from"):
        train(settings(**START, **NO_LABELS, method="fixmatch"), 3)


def test_given_scaled_vectors_or_another_model_than_a_linear_layer_then_the_run_is_refused(
    settings: Settings,
) -> None:
    scaled = {"standardize": "federation", "method": "fixmatch"}
    with refuses("settings-contradict", setting="standardize"):
        train(settings(**START, **NO_LABELS, **scaled), 3)
    with refuses("settings-contradict", match="linear"):
        settings(**{**START, "model": "mlp"})


def test_a_function_of_names_is_a_module_to_trust_and_a_path_is_none(tmp_path: Path) -> None:
    assert named_modules({"start-from": "encoder:of_names"}) == ["encoder:of_names"]
    assert named_modules({"start-from": "/runs/12:30/first"}) == []
    (tmp_path / "runs").mkdir()
    assert resolve({**START, "start-from": "encoder:of_names"}, tmp_path).start_from == (
        "encoder:of_names"
    )
