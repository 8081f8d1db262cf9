"""Step sizes over the rounds, at clients and at the server."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch.nn import functional

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from tests.support.runs import last_model, train

Settings = Callable[..., RunConfig]
COSINE = {"learning_rate_schedule": "cosine", "learning_rate": 0.5}


STAGES = {"method": "labels-only", "semi.labels-only-rounds": 2}


def client_of(settings: RunConfig) -> Client:
    node = NodeConfig(partition_id=0, num_partitions=1)
    return Client(settings, node, ClientState(RecordDict()))


def rates(settings: RunConfig) -> list[Any]:
    client = client_of(settings)
    return [client.round({"server-round": number}).plan.learning_rate for number in (1, 2, 3, 4)]


def test_a_cosine_over_all_rounds_or_those_given(settings: Settings) -> None:
    root = 0.25 * np.sqrt(0.5)
    assert rates(settings(num_rounds=4, **COSINE)) == pytest.approx(
        [0.5, 0.25 + root, 0.25, 0.25 - root]
    )
    # T = 2: half the step size in round 2, and so from there on.
    found = rates(settings(num_rounds=4, learning_rate_rounds=2, **COSINE))
    assert found == pytest.approx([0.5, 0.25, 0.25, 0.25])


def test_the_schedule_restarts_in_the_second_stage(settings: Settings) -> None:
    config = settings(num_rounds=4, learning_rate_rounds=2, **STAGES, **COSINE)
    assert rates(config) == pytest.approx([0.5, 0.25, 0.5, 0.25])
    # Without T each stage of two rounds has its own.
    config = settings(num_rounds=4, **STAGES, **COSINE)
    assert rates(config) == pytest.approx([0.5, 0.25, 0.5, 0.25])
    # A first stage as long as the run is the only one.
    config = settings(num_rounds=4, **{**STAGES, "semi.labels-only-rounds": 9}, **COSINE)
    assert rates(config) == rates(settings(num_rounds=4, **COSINE))


def test_the_server_may_say_what_to_multiply_by(settings: Settings) -> None:
    schedule = {"learning_rate_schedule": "plateau", "learning_rate": 0.5}
    client = client_of(settings(**schedule))
    told = {"server-round": 7, "rate-factor": 0.25}
    assert client.round(told).plan.learning_rate == 0.125
    assert client.round({"server-round": 7}).plan.learning_rate == 0.5


def test_in_frozen_rounds_only_the_last_layer_is_trained(settings: Settings) -> None:
    client = client_of(settings(**{"frozen-rounds": 2, "start-from": "somewhere"}))
    plans = [client.round({"server-round": number}).plan for number in (1, 2, 3)]
    assert [plan.heads_only for plan in plans] == [True, True, False]


def test_training_at_the_server_follows_the_schedule(settings: Settings) -> None:
    config = settings(
        **{"model": "mlp", "method": "server-only", "num_rounds": 2, "batch_size": 0},
        **{"optimizer": "sgd", "precision": "float64", "server_fraction": 0.2},
        **{"learning_rate_schedule": "cosine", "server.learning-rate": 0.2},
    )
    directory = train(config, 2)
    source = load_source("digits")
    rows = build_split(source_directory("digits"), 2, config).server
    model = build_model("mlp", source.input_shape, 10, config.seed).double()
    inputs = to_input(torch.from_numpy(source.train.inputs[rows])).double()
    labels = torch.from_numpy(np.asarray(source.train.labels)[rows])
    for factor in (1.0, 0.5):  # (1 + cos 0)/2 and (1 + cos(π/2))/2
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2 * factor)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-7, atol=1e-10)
