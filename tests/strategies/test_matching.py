"""Runs of UDA, FixMatch and all labels: where labels are, plain twins, streams, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import Split, build_split
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from tests.support.refusals import refuses
from tests.support.runs import (
    assert_same_run,
    cut_off,
    last_model,
    metrics,
    resume,
    same,
    summary,
    train,
)

Settings = Callable[..., RunConfig]
QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 60},
}
AT_SERVER: dict[str, Any] = {"scenario.labels-at": "server", "server_fraction": 0.1}
WIDE: dict[str, Any] = {
    **{"precision": "float64", "batch_size": 0, "optimizer": "sgd", "learning_rate": 0.01},
}


# Plain twins


def split_of(config: RunConfig, clients: int) -> Split:
    return build_split(source_directory("digits"), clients, config)


def step(model: nn.Module, rows: Any, rate: float) -> None:
    """One step of gradient descent on 10·CE of rows of the training images with their labels."""
    source = load_source("digits")
    inputs = to_input(torch.from_numpy(source.train.inputs[rows])).double()
    labels = torch.from_numpy(np.asarray(source.train.labels)[rows])
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    (10 * functional.cross_entropy(model(inputs), labels)).backward()
    optimizer.step()


def fresh(config: RunConfig) -> nn.Module:
    return build_model("mlp", load_source("digits").input_shape, 10, config.seed).double()


def federated(config: RunConfig, rows: list[Any], rounds: int) -> nn.Module:
    """Federated averaging of one step at each client on its ``rows``."""
    model = fresh(config)
    for _ in range(rounds):
        states = []
        for points in rows:
            local = fresh(config)
            local.load_state_dict(model.state_dict())
            step(local, points, config.learning_rate)
            states.append(local.state_dict())
        names = model.state_dict()
        mean = {name: torch.stack([s[name] for s in states]).mean(dim=0) for name in names}
        model.load_state_dict(mean)
    return model


def assert_ends_as(directory: Path, model: nn.Module) -> None:
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fixmatch", {"ssl.unsupervised-weight": 0.0}),
        ("all-labels", {}),
        ("given-labels", {}),
    ],
)
def test_without_unlabeled_points_it_is_supervised_learning(
    settings: Settings, method: str, options: dict[str, Any]
) -> None:
    config = settings(**QUICK, **WIDE, method=method, **options)
    clients = [one for one in split_of(config, 3).clients if isinstance(one, LabelTruth)]
    rows = [client.points[client.observed >= 0] for client in clients]
    assert sum(map(len, rows)) == (180 if method == "all-labels" else 100)
    directory = train(config, 3)
    assert_ends_as(directory, federated(config, rows, rounds=2))
    assert all("server_loss" not in line for line in metrics(directory))


@pytest.mark.parametrize("method", ["uda", "fixmatch"])
def test_with_labels_at_the_server_it_trains_one_epoch_before_every_round_the_first_too(
    settings: Settings, method: str
) -> None:
    # Clients whose consistency has no weight leave the model as it is.
    weightless = {"ssl.unsupervised-weight": 0.0}
    config = settings(
        **{**QUICK, "num_rounds": 3}, **WIDE, **AT_SERVER, method=method, **weightless
    )
    directory = train(config, 3)
    model, rows = fresh(config), split_of(config, 3).server
    for _ in range(3):  # one step an epoch, as all points are one batch
        step(model, rows, config.learning_rate)
    assert_ends_as(directory, model)
    assert [line["loss"] for line in metrics(directory)] == [0.0] * 3


def test_all_labels_learn_at_the_server_as_well(settings: Settings) -> None:
    config = settings(**QUICK, **WIDE, **AT_SERVER, method="all-labels")
    split = split_of(config, 3)
    directory = train(config, 3)
    model = fresh(config)
    for _ in range(2):
        step(model, split.server, config.learning_rate)
        clients = []
        for client in split.clients:
            clients.append(fresh(config))
            clients[-1].load_state_dict(model.state_dict())
            step(clients[-1], client.points, config.learning_rate)
        states = [client.state_dict() for client in clients]
        model.load_state_dict(
            {name: torch.stack([s[name] for s in states]).mean(dim=0) for name in states[0]}
        )
    assert_ends_as(directory, model)


# Settings count


STREAMED = {"scenario.streaming-steps": 2, "scenario.rounds-per-step": 1}
OTHERS: dict[str, list[dict[str, Any]]] = {
    "uda": [{"ssl.unlabeled-batch-size": 7}, {"ssl.operations": 2}, {"ssl.recipe": "release"}],
    "fixmatch": [{"fixmatch.threshold": 0.3}, {"ssl.unsupervised-weight": 9.0}],
    "all-labels": [{"ssl.supervised-weight": 1.0}, STREAMED],
}


@pytest.mark.parametrize("method", OTHERS)
def test_every_setting_counts(settings: Settings, method: str) -> None:
    # Several steps in the first round: there is something to anneal, and to be sure of.
    base: dict[str, Any] = {**QUICK, "method": method, "local_epochs": 4, "learning_rate": 0.01}
    base |= {"fixmatch.threshold": 0.2} if method == "fixmatch" else {}
    runs = [train(settings(**{**base, **other}), 2) for other in ({}, *OTHERS[method])]
    for i, run in enumerate(runs):
        assert not any(same(run, other) for other in runs[:i]), ({}, *OTHERS[method])[i]
    assert same(runs[0], train(settings(**base), 2))


def test_a_model_with_batch_norm(settings: Settings) -> None:
    quick = {**QUICK, "model": "cnn6-quarter", "num_rounds": 1, "points_per_client": 30}
    directory = train(settings(**quick, **AT_SERVER, method="fixmatch"), 2)
    assert all(np.isfinite(array).all() for array in last_model(directory).values())


# Streams and interruptions


def test_a_stream_that_has_run_dry_ends_the_run_in_one_sentence(settings: Settings) -> None:
    # Two points for each client, one in each of the first two steps.
    steps = {"scenario.streaming-steps": 3, "scenario.rounds-per-step": 1}
    quick = {**QUICK, **AT_SERVER, "points_per_client": 2, "num_rounds": 3}
    config = settings(**quick, method="fixmatch", **steps)
    with refuses("nothing-to-learn", match="Round 3: "):
        train(config, 2)
    assert [line["round"] for line in metrics(Path(config.output))] == [1, 2]


RESUMED: dict[str, dict[str, Any]] = {
    "uda": {**AT_SERVER, "method": "uda", "fraction_train": 0.5},
    "fixmatch over scaffold": {
        **{**AT_SERVER, "method": "fixmatch", "fixmatch.threshold": 0.2},
        **{"base": "scaffold", "optimizer": "sgd", "learning_rate": 0.01},
    },
    "a stream at clients": {
        **{"method": "uda", "scenario.streaming-steps": 4, "scenario.rounds-per-step": 1},
    },
}


@pytest.mark.parametrize("options", RESUMED.values(), ids=RESUMED)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    settings: Settings, options: dict[str, Any]
) -> None:
    plan = {**QUICK, "num_rounds": 4, **options}
    whole = train(settings(**plan), 4)
    directory = cut_off(settings(**plan), 4, call=4)  # hello, prepare, two rounds are over
    assert len(metrics(directory)) == 2
    assert_same_run(resume(directory, 4), whole)


# What is learned


def test_it_learns_with_labels_at_the_server(settings: Settings) -> None:
    points = {"server.points": 100, "server.epochs": 3}
    config = settings(
        model="mlp", num_rounds=6, evaluate_every=6, **AT_SERVER, **points, method="fixmatch"
    )
    assert summary(train(config, 4))["test_error"] < 20  # chance is 90
