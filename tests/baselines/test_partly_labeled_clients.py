"""Clients with labels at some points: what they train on, with which weights, by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedul_flwr import learning
from fedul_flwr.baselines.fedsem import LABEL, FedSemClient
from fedul_flwr.baselines.labels_only import LabelsOnlyClient
from fedul_flwr.baselines.local_lp import LocalLPClient
from fedul_flwr.baselines.pseudo_label import PseudoLabelClient
from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.config.method_settings import PropagationSettings
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.types import Content, Propagated
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.learning.local import dump_arrays, extract_features, load_arrays, predict_logits
from fedul_flwr.learning.pseudo_labels import PseudoLabels, WeightedPoints
from fedul_flwr.models import build_model
from fedul_flwr.propagation.central import label_propagation
from fedul_flwr.propagation.client import GraphPoints
from tests.support.local_tasks import fit, weighted_points
from tests.support.recorded_calls import recorded
from tests.support.runs import last_model, train
from tests.support.settings import Settings
from tests.support.simulated_clients import simulated_client

C = TypeVar("C", bound=Client)
FIRST, SECOND = 10, 11
"""Rounds on both sides of the border between the stages, by default."""


@pytest.fixture
def client(settings: Settings) -> Callable[..., Any]:
    """``client(kind, method, number, **settings)``: one of three simulated clients, prepared."""

    def build(kind: type[C], method: str, number: int = 0, **options: Any) -> C:
        defaults = {"points_per_client": 100, "labels.total": 60, "labels.new-fraction": 0.1}
        config = settings(model="mlp", local_epochs=1, method=method, **{**defaults, **options})
        built = simulated_client(kind, config, number)
        load_arrays(built.model, weights())
        return built

    return build


Build = Callable[..., Any]


def weights(seed: int = 3) -> dict[str, Any]:
    return dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=seed))


def none(count: int) -> PseudoLabels:
    """No labels for ``count`` points, to be filled in."""
    return PseudoLabels.none(count)


@pytest.mark.parametrize("kind", [LabelsOnlyClient, PseudoLabelClient, LocalLPClient])
def test_in_the_first_stage_labels_count_alone_and_as_one(client: Build, kind: Any) -> None:
    names: dict[Any, str] = {LabelsOnlyClient: "labels-only", PseudoLabelClient: "pseudo-label"}
    built = client(kind, names.get(kind, "local-lp"))
    found, own = weighted_points(built, FIRST), built.data.examples
    given = own.labels >= 0
    assert given.sum() == 20
    np.testing.assert_array_equal(found.points, own.points[given])
    np.testing.assert_array_equal(found.classes, own.labels[given])
    np.testing.assert_array_equal(found.weights, np.ones(20))
    assert found.num_labeled == 20


def test_weights_of_network_labels_by_hand(client: Build) -> None:
    """Confidences as they are: neither text nor code divides those of a network."""
    built = client(PseudoLabelClient, "pseudo-label")
    found, own = weighted_points(built, SECOND), built.data.examples
    asked = (own.labels < 0) & ~own.new
    assert (asked.sum(), own.new.sum()) == (70, 10)

    model = build_model("mlp", (8, 8, 1), 10)
    load_arrays(model, weights())
    logits = predict_logits(model, own.inputs, own.points[asked]).double()
    shares = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=1, keepdims=True)
    confidence = 1 + (shares * np.log(shares)).sum(axis=1) / np.log(10)
    classes = np.concatenate([own.labels[own.labels >= 0], shares.argmax(axis=1)])
    expected = np.concatenate([np.ones(20), confidence])
    np.testing.assert_array_equal(
        found.points, np.append(own.points[own.labels >= 0], own.points[asked])
    )
    np.testing.assert_array_equal(found.classes, classes)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-6)
    assert np.ptp(found.weights) > 0.1


def test_in_the_release_points_without_confidence_stay_in_batches(client: Build) -> None:
    built = client(
        PseudoLabelClient, "pseudo-label", **{"semi.recipe": "release", "augment": "none"}
    )
    found = weighted_points(built, SECOND)
    assert len(found.points) == 20 + 70
    assert (found.weights[20:] == 0).mean() > 0.9
    assert (found.classes >= 0).all()


def labeled_by(client: Client, labels: PseudoLabels) -> WeightedPoints:
    """The points that a client with these pseudo labels trains on in the second stage."""
    now = client.round({"server-round": SECOND})
    assert isinstance(client.data, PartlyLabeledData)
    return client.staged_points(now, lambda: labels)


LABELING: list[tuple[Any, str, Any, str]] = [
    (PseudoLabelClient, "pseudo-label", learning, "predict_logits"),
    (LocalLPClient, "local-lp", learning, "extract_features"),
]


@pytest.mark.parametrize(("kind", "method", "module", "name"), LABELING)
def test_given_the_released_recipe_then_points_are_labeled_in_views_of_the_round(
    client: Build, monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, module: Any, name: str
) -> None:
    views = recorded(monkeypatch, module, name, 4)
    weighted_points(client(kind, method, 2), SECOND)
    assert views == [None]
    built = client(kind, method, 2, seed=6, **{"semi.recipe": "release", "augment": "rotate"})
    for number in (SECOND, SECOND, SECOND + 1):
        weighted_points(built, number)
    # The generator has drawn for the views of the round; a second time it draws the same.
    drawn = [float(rng.random()) for rng in views[1:]]
    assert drawn[0] == drawn[1] != drawn[2]
    unused = stream(6, "labeling-views", SECOND, 2)
    assert float(unused.random()) != drawn[0]


def test_given_the_released_recipe_then_features_in_the_graph_of_xclp_are_of_views(
    client: Build,
) -> None:
    def features(number: int, **options: Any) -> Any:
        built = client(XCLPClient, "xclp", 1, **options)
        return built._features(weights(), number)

    plain, views = {"augment": "rotate"}, {"semi.recipe": "release", "augment": "rotate"}
    as_they_are = features(SECOND, **plain)
    np.testing.assert_array_equal(as_they_are, features(SECOND + 1, **plain))
    found = features(SECOND, **views)
    assert found.shape == as_they_are.shape
    assert np.abs(found - as_they_are).max() > 0.01
    np.testing.assert_array_equal(found, features(SECOND, **views))
    assert np.abs(found - features(SECOND + 1, **views)).max() > 0.01


@pytest.mark.parametrize(
    ("alpha", "recipe", "power", "scaled"),
    [(0.99, "release", 3.0, True), (0.5, "release", 3.0, True), (0.99, "paper", 1.0, False)],
)
def test_perclient_lp_is_label_propagation_of_its_own_points(
    client: Build, alpha: float, recipe: str, power: float, scaled: bool
) -> None:
    options = {"xclp.num-bits": 256, "xclp.k": 5, "xclp.alpha": alpha, "xclp.recipe": recipe}
    found = client(LocalLPClient, "local-lp", **options)
    own = found.data.examples
    # A confidence is of all classes, not of those it has.
    own = replace(own, labels=np.where(own.labels > 7, -1, own.labels))
    found.data.examples = own
    shown = ~own.new
    model = build_model("mlp", (8, 8, 1), 10)
    load_arrays(model, weights())
    expected = label_propagation(
        extract_features(model, own.inputs, own.points[shown]),
        own.labels[shown],
        num_classes=10,
        k=5,
        num_bits=256,
        alpha=alpha,
        power=power,
        class_scaling=scaled,
    )
    guess = found.pseudo_labels()
    unlabeled = own.labels[shown] < 0
    np.testing.assert_array_equal(guess.labels, expected.labels[unlabeled])
    np.testing.assert_array_equal(guess.confidence, expected.confidence[unlabeled])
    assert len(set(guess.labels.tolist())) > 3


def test_confidences_of_xclp_are_over_the_largest_of_the_clients_unlabeled_points(
    client: Build,
) -> None:
    built = client(XCLPClient, "xclp")
    guess = none(len(built.data.unlabeled))
    guess.labels[:3], guess.confidence[:3] = [3, 1, 4], [0.3, 0.6, 0.15]
    found = labeled_by(built, PseudoLabels.of(Propagated(guess.labels, guess.confidence)))
    expected = [0.5, 1.0, 0.25]
    np.testing.assert_allclose(found.weights, [1.0] * 20 + expected)


@pytest.mark.parametrize("recipe", ["release", "paper"])
def test_confidences_of_perclient_lp_are_over_the_largest_of_all_its_points(
    client: Build, recipe: str
) -> None:
    options = {"xclp.num-bits": 256, "xclp.recipe": recipe}
    built = client(LocalLPClient, "local-lp", **options)
    guess, found = built.pseudo_labels(), weighted_points(built, SECOND)
    graph = GraphPoints.of_training(built.data.examples, 10)
    features = extract_features(built.model, built.data.examples.inputs, graph.rows)
    scores = graph.own_scores(features, built.settings[PropagationSettings])
    shares = scores / scores.sum(axis=1, keepdims=True)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    largest = (1 + (shares * logs).sum(axis=1) / np.log(10)).max()
    assert largest > guess.confidence.max()  # it is that of a labeled point
    usable = (guess.labels >= 0) & (guess.confidence > 0)
    divisor = largest if recipe == "release" else 1.0
    np.testing.assert_allclose(found.weights[20:], guess.confidence[usable] / divisor)
    np.testing.assert_array_equal(found.weights[:20], np.ones(20))


@pytest.mark.parametrize(
    ("kind", "method"),
    [(PseudoLabelClient, "pseudo-label"), (FedSemClient, "fedsem"), (LocalLPClient, "local-lp")],
)
def test_all_points_labeled_train_as_labels_do(client: Build, kind: Any, method: str) -> None:
    full: dict[str, Any] = {"labels.total": 300, "labels.new-fraction": 0.0}
    bits = {"xclp.num-bits": 256} if method == "local-lp" else {}
    built = client(kind, method, **full, **bits)
    if method == "fedsem":
        built.on_phase(LABEL, Content(weights(), {"after-round": FIRST}))
    found = weighted_points(built, SECOND)
    assert found.points.tolist() == built.data.examples.points.tolist()
    np.testing.assert_array_equal(found.weights, np.ones(100))


def test_without_a_label_there_is_nothing_to_learn_at_first(client: Build) -> None:
    options = {"labels.labeled-clients": 0.4, "labels.total": 20}
    kinds = [client(PseudoLabelClient, "pseudo-label", number, **options) for number in (0, 1, 2)]
    (found, *_) = [one for one in kinds if not len(one.data.labeled)]
    given = list(weights(5).values())
    arrays, examples, numbers = fit(found, [a.copy() for a in given], {"server-round": FIRST})
    assert examples == 0
    assert numbers == {"loss": 0.0, "steps": 0, "normalizer": 0.0}
    for array, expected in zip(arrays, given, strict=True):
        np.testing.assert_array_equal(array, expected)
    _, examples, _ = fit(found, [a.copy() for a in given], {"server-round": SECOND})
    assert examples == 90


# FedSem


def pseudo_labels(run: Path, client: int, server_round: int) -> dict[str, Any]:
    name = f"{PSEUDO_LABELS}-{server_round}.safetensors"
    found: dict[str, Any] = load_file(run / "clients" / str(client) / name)
    return found


def test_fedsem_labels_once_by_the_first_stages_model(settings: Settings) -> None:
    plan: dict[str, Any] = {"model": "mlp", "local_epochs": 1, "points_per_client": 60}
    plan["labels.total"] = 40
    first = train(settings(**plan, method="labels-only", num_rounds=2), 2)
    stage = {"semi.labels-only-rounds": 2}
    # Of its pseudo labels a client keeps those of the last round.
    runs, others = (
        {n: train(settings(**plan, **stage, method=method, num_rounds=n), 2) for n in (3, 4)}
        for method in ("fedsem", "pseudo-label")
    )
    model = build_model("mlp", (8, 8, 1), 10)
    load_arrays(model, last_model(first))
    images = load_source("digits").train.inputs
    for number in range(2):
        folder = runs[4] / "clients" / str(number)
        assert [file.name for file in folder.glob(f"{LABEL}-*")] == [f"{LABEL}-2.safetensors"]
        kept = load_file(folder / f"{LABEL}-2.safetensors")
        for server_round in (3, 4):  # both rounds train on the same labels
            used = pseudo_labels(runs[server_round], number, server_round)
            np.testing.assert_array_equal(used["labels"], kept["labels"])
            np.testing.assert_array_equal(used["confidence"], kept["confidence"])
        shares = predict_logits(model, images, used["points"]).double().softmax(dim=1).numpy()
        np.testing.assert_array_equal(kept["labels"], shares.argmax(axis=1))
        entropy = -(shares * np.log(shares)).sum(axis=1)
        np.testing.assert_allclose(kept["confidence"], 1 - entropy / np.log(10), atol=1e-6)
    # Labels of each round's own model are others.
    once, anew = (
        [pseudo_labels(found[n], 0, n)["confidence"] for n in (3, 4)] for found in (runs, others)
    )
    np.testing.assert_array_equal(once[0], anew[0])
    assert (once[1] != anew[1]).any()
