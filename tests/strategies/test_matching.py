"""Runs of UDA, FixMatch and all labels: where labels are, plain twins, streams, resuming."""

import copy
from typing import Any

import pytest
from torch import nn

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.split import LabelTruth
from tests.support.plain_loops import assert_ends_as, fresh, mean_state, split_of, step
from tests.support.runs import assert_same_run, cut_off, metrics, resume, train
from tests.support.settings import AT_SERVER, QUICK, WIDE, Settings

# Plain twins


def federated(config: RunConfig, rows: list[Any], rounds: int) -> nn.Module:
    """Federated averaging of one step at each client on its ``rows``, of 10·CE."""
    model = fresh(config)
    for _ in range(rounds):
        models = [copy.deepcopy(model) for _ in rows]
        for local, points in zip(models, rows, strict=True):
            step(local, points, config.learning_rate, 10)
        model.load_state_dict(mean_state(models))
    return model


@pytest.mark.parametrize(
    ("method", "options"),
    [("fixmatch", {"ssl.unsupervised-weight": 0.0}), ("all-labels", {}), ("given-labels", {})],
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
        step(model, rows, config.learning_rate, 10)
    assert_ends_as(directory, model)
    assert [line["loss"] for line in metrics(directory)] == [0.0] * 3


# Streams and interruptions


def test_a_resumed_stream_ends_as_an_uninterrupted_one(settings: Settings) -> None:
    stream = {"scenario.streaming-steps": 4, "scenario.rounds-per-step": 1}
    plan = {**QUICK, "method": "uda", "num_rounds": 4, **stream}
    whole = train(settings(**plan), 4)
    directory = cut_off(settings(**plan), 4, call=4)  # hello, prepare, two rounds are over
    assert len(metrics(directory)) == 2
    assert_same_run(resume(directory, 4), whole)
