"""Clients with labels at some points: what they train on, with which weights, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedul_flwr.baselines.fedsem import LABEL
from fedul_flwr.baselines.local_lp import LocalLPClient
from fedul_flwr.baselines.pseudo_label import PseudoLabelClient
from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.types import Propagated
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import staged_points
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.features import extract_features
from fedul_flwr.learning.local import dump_arrays, load_arrays, predict_logits
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.pseudo_label_task import PseudoLabels, WeightedPoints
from fedul_flwr.models import build_model
from fedul_flwr.propagation.central import label_propagation
from tests.support.local_tasks import task_of, weighted_points
from tests.support.runs import last_model, train
from tests.support.simulated_clients import simulated_client

Settings = Callable[..., RunConfig]
C = TypeVar("C", bound=MethodClient)
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


def labeled_by(client: MethodClient, labels: PseudoLabels) -> WeightedPoints:
    """The points that a client with these pseudo labels trains on in the second stage."""
    now = client.round({"server-round": SECOND})
    assert isinstance(client.data, PartlyLabeledData)
    return staged_points(client.data, client.state, now, lambda: labels)


def test_the_loss_of_a_step_weighs_points(client: Build) -> None:
    built = client(PseudoLabelClient, "pseudo-label")
    found, task = weighted_points(built, SECOND), task_of(built, SECOND)
    chosen = np.array([3, 85, 40])
    inputs = to_input(torch.from_numpy(found.inputs[found.points[chosen]]))
    network = Network(built.model, torch.device("cpu"), "float32")
    loss = task.objective(network, inputs, torch.from_numpy(chosen))
    shares = network(inputs).detach().softmax(dim=1).numpy()[np.arange(3), found.classes[chosen]]
    expected = -(found.weights[chosen] * np.log(shares)).sum() / 3
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


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
