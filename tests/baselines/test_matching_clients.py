"""Clients of UDA, FixMatch and all labels: what they train on, when it arrives, with which loss."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.baselines.all_labels import AllLabelsClient
from fedul_flwr.baselines.fixmatch import FixMatchClient
from fedul_flwr.baselines.uda import UDAClient
from fedul_flwr.data.sources import load_source
from fedul_flwr.federated.client import Client
from fedul_flwr.learning import views
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.local import dump_arrays, load_arrays
from fedul_flwr.learning.network import Network
from fedul_flwr.models import build_model
from tests.support.local_tasks import batch_of, task_of, training_points
from tests.support.settings import Settings
from tests.support.simulated_clients import simulated_client

KINDS: dict[str, type[Client]] = {
    "uda": UDAClient,
    "fixmatch": FixMatchClient,
    "all-labels": AllLabelsClient,
}
AT_SERVER = {"scenario.labels-at": "server"}


@pytest.fixture
def client(settings: Settings) -> Callable[..., Any]:
    """``client(method, number, **settings)``: one of three simulated clients, prepared."""

    def build(method: str, number: int = 0, **options: Any) -> Any:
        labels = {} if method == "all-labels" or AT_SERVER.items() <= options.items() else LABELS
        config = settings(
            **{"model": "mlp", "method": method, "points_per_client": 80, **labels, **options}
        )
        built = simulated_client(KINDS[method], config, number)
        load_arrays(built.model, weights())
        return built

    return build


Build = Callable[..., Any]
LABELS = {"labels.total": 60}


def weights() -> dict[str, Any]:
    return dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=3))


@pytest.mark.parametrize("method", ["uda", "fixmatch"])
def test_labeled_points_and_all_others(client: Build, method: str) -> None:
    found = client(method)
    data = training_points(found)
    assert (data.targets >= 0).tolist() == [True] * 20 + [False] * 60
    assert sorted(data.points) == sorted(found.data.examples.points)
    labels = np.asarray(load_source("digits").train.labels)
    np.testing.assert_array_equal(data.targets[:20], labels[data.points[:20]])
    assert found.register() == {"num-points": 80, "num-labeled": 20}


# Streams


def arrivals(client: Client, rounds: int, labeled: bool) -> list[set[int]]:
    """Points that arrive in each round: unlabeled ones, or labeled ones."""
    found = []
    for number in range(1, rounds + 1):
        data = training_points(client, number)
        chosen = data.points[(data.targets >= 0) == labeled]
        assert len(set(chosen.tolist())) == len(chosen)
        found.append(set(chosen.tolist()))
    return found


STREAM = {"scenario.streaming-steps": 4, "scenario.rounds-per-step": 3}


@pytest.mark.parametrize(
    ("method", "scenario", "count"),
    [
        ("uda", {}, 60),
        ("fixmatch", {}, 60),
        ("uda", AT_SERVER, 80),
        ("all-labels", {}, 80),
        ("all-labels", AT_SERVER, 80),
    ],
)
def test_points_arrive_once_and_never_before_their_step(
    client: Build, method: str, scenario: dict[str, Any], count: int
) -> None:
    found = client(method, **STREAM, **scenario)
    rounds = arrivals(found, 15, labeled=method == "all-labels")
    steps = [rounds[first] for first in (0, 3, 6, 9)]
    assert rounds == [step for step in steps for _ in range(3)] + [steps[3]] * 3  # it goes on
    assert [len(step) for step in steps] == [count // 4] * 4
    assert len(set.union(*steps)) == count
    if method != "all-labels":  # what has a label is there from the start
        labeled = arrivals(found, 15, labeled=True)
        assert labeled == [labeled[0]] * 15
        assert len(labeled[0]) == 80 - count


def test_streams_are_drawn_from_the_seed_for_each_client(client: Build) -> None:
    def of(**options: Any) -> list[set[int]]:
        return arrivals(client("uda", **STREAM, **options), 12, labeled=False)

    assert of() == of()
    # The same points under every method that shares the split.
    assert of() == arrivals(client("fixmatch", **STREAM), 12, labeled=False)
    positions = np.arange(60)
    orders = [
        found.data.arrived(positions, 1).tolist()
        for number, seed in ((0, 0), (1, 0), (0, 1))
        for found in (client("uda", number, **STREAM, seed=seed),)
    ]
    assert len({tuple(order) for order in orders}) == 3


# Batches and losses


def test_batches_have_unlabeled_points_beside(client: Build) -> None:
    for method, size, expected in (("uda", 25, 25), ("fixmatch", 0, 30)):
        found = client(method, batch_size=10, **{"ssl.unlabeled-batch-size": size})
        batches = task_of(found).batches(np.random.default_rng(0))
        parts = [int((labels < 0).sum()) for _, labels, _ in batches]
        assert parts == [expected] * 2  # of 20 labeled points
    found = client("all-labels", batch_size=10)
    batches = task_of(found).batches(np.random.default_rng(0))
    assert [len(labels) for _, labels, _ in batches] == [10] * 8


def batch(client: Client, count: int = 40) -> tuple[Tensor, Tensor]:
    data = training_points(client)
    # A fresh model is sure of nothing: stronger contrasts make some outputs larger.
    inputs = 6 * to_input(torch.from_numpy(data.inputs[data.points[:count]])).double()
    return inputs, torch.from_numpy(data.targets[:count])


def network(client: Client) -> Network:
    own = copy.deepcopy(client.model).double()  # a process has one model for all clients
    return Network(own, torch.device("cpu"), "float64")


def test_the_loss_of_uda(client: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "randaugment", lambda inputs, *_: inputs.flip(3))
    options = {"ssl.supervised-weight": 3.0, "ssl.unsupervised-weight": 0.7}
    found = client("uda", **options, num_rounds=20)
    (inputs, labels), model = batch(found), network(found)
    value = float(task_of(found, 4).loss(model, batch_of(inputs, labels)).detach())
    with torch.no_grad():
        shares, strong = (model(x).softmax(dim=1) for x in (inputs, inputs.flip(3)))
    # Round 4 of 20: 1/10 + 9/10·exp(5·(4/20 − 1)) = 1/10 + 9/10·exp(−4) = .116484.
    true = shares[:20][torch.arange(20), labels[:20]]
    kept = true <= 0.1 + 0.9 * np.exp(-4)
    assert 0 < int(kept.sum()) < 20
    each = (shares[20:] * (shares[20:] / strong[20:]).log()).sum(dim=1)
    expected = 3 * -true[kept].log().mean() + 0.7 * each.sum() / 20
    assert value == pytest.approx(float(expected), rel=1e-6)


def test_the_loss_of_fixmatch(client: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "randaugment", lambda inputs, *_: inputs.flip(3))
    options = {"fixmatch.threshold": 0.2, "ssl.supervised-weight": 3.0}
    found = client("fixmatch", **options, **{"ssl.unsupervised-weight": 0.7})
    (inputs, labels), model = batch(found), network(found)
    value = float(task_of(found, 1).loss(model, batch_of(inputs, labels)).detach())
    with torch.no_grad():
        logits, strong = model(inputs), model(inputs.flip(3))
    top, guess = logits[20:].softmax(dim=1).max(dim=1)
    each = functional.cross_entropy(strong[20:], guess, reduction="none")
    assert 0 < int((top >= 0.2).sum()) < 20
    supervised = functional.cross_entropy(logits[:20], labels[:20])
    expected = 3 * supervised + 0.7 * each[top >= 0.2].sum() / 20
    assert value == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("method", ["uda", "fixmatch"])
@pytest.mark.parametrize("maker", ["randaugment", "released_randaugment"])
def test_views_are_drawn_as_the_settings_say(
    client: Build, monkeypatch: pytest.MonkeyPatch, method: str, maker: str
) -> None:
    asked: list[tuple[Any, ...]] = []

    def spy(inputs: Tensor, *options: Any) -> Tensor:
        asked.append(options)
        return inputs

    monkeypatch.setattr(views, maker, spy)
    recipe = {"ssl.recipe": "release"} if maker == "released_randaugment" else {}
    found = client(method, **recipe, **{"ssl.operations": 4})
    task_of(found, 1).loss(network(found), batch_of(*batch(found)))
    assert asked == [(4,)]
