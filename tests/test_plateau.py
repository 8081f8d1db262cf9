"""Step sizes that follow the validation loss: what rounds train with, stages, resumed runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch.nn import functional

from fedul_flwr.config import RunConfig, resolve
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.schedules import plateau
from fedul_flwr.models import build_model
from tests.runs import MeddlingGrid, last_model, metrics, train

Settings = Callable[..., RunConfig]
PLATEAU = {
    **{"learning_rate_schedule": "plateau", "learning_rate_patience": 1},
    "learning_rate_factor": 2.0,
}
# Steps so long that the loss rises again and again.
WILD: dict[str, Any] = {
    **{"model": "mlp", "method": "supervised", "optimizer": "sgd", "learning_rate": 3.0},
    **{"batch_size": 0, "local_epochs": 1, "num_rounds": 6, "precision": "float64"},
    **PLATEAU,
}


def columns(directory: Path, *keys: str) -> list[list[Any]]:
    return [[line[key] for line in metrics(directory)] for key in keys]


@pytest.mark.parametrize("method", ["supervised", "server-only"])
def test_a_plain_loop_with_these_step_sizes_gives_the_same(settings: Settings, method: str) -> None:
    config = settings(**{**WILD, "method": method, "server_fraction": 0.3})
    directory = train(config, 1)
    losses, factors = columns(directory, "validation_loss", "rate_factor")
    assert factors == [plateau(losses[:number], 1, 2.0) for number in range(6)]
    assert len(set(factors)) > 2

    source = load_source("digits")
    split = build_split(source_directory("digits"), 1, config)
    rows = split.clients[0].points if method == "supervised" else split.server
    model = build_model("mlp", source.image_shape, 10, config.seed).double()

    def loss_of(points: Any) -> torch.Tensor:
        inputs = to_input(torch.from_numpy(source.train.images[points])).double()
        labels = torch.from_numpy(np.asarray(source.train.labels)[points])
        return functional.cross_entropy(model(inputs), labels)

    for number, factor in enumerate(factors):
        optimizer = torch.optim.SGD(model.parameters(), lr=3.0 * factor)
        optimizer.zero_grad()
        loss_of(np.unique(rows)).backward()
        optimizer.step()
        assert losses[number] == pytest.approx(loss_of(split.validation).item(), rel=1e-6)
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-6, atol=1e-8)


class Cut(Exception):
    """Stands for whatever interrupts a run."""


@pytest.mark.parametrize("every", [1, 2])
def test_a_resumed_run_ends_as_an_uninterrupted_one(settings: Settings, every: int) -> None:
    plan = {**WILD, "evaluate_every": every}
    whole = train(settings(**plan), 2)

    def cut(call: int, replies: list[Message]) -> list[Message]:
        if call == 6:  # hello, prepare and four rounds are over
            raise Cut
        return replies

    config = settings(**plan)
    with pytest.raises(Cut):
        train(config, 2, wrap_grid=lambda grid: MeddlingGrid(grid, cut))
    directory = Path(config.output)
    assert metrics(whole)[4]["rate_factor"] < 1
    train(resolve({"resume": str(directory)}, Path.cwd()), 2)
    assert metrics(directory) == metrics(whole)
    # One that had fewer rounds at first, of which the last was evaluated out of turn.
    shorter = train(settings(**{**plan, "num_rounds": 3}), 2)
    train(resolve({"resume": str(shorter), "num-rounds": 6}, Path.cwd()), 2)
    assert columns(shorter, "rate_factor") == columns(whole, "rate_factor")


def test_it_begins_anew_with_a_second_stage(settings: Settings) -> None:
    plan = {**WILD, "method": "network-labels", "semi.labels-only-rounds": 3}
    plan |= {"learning_rate": 10.0}
    losses, factors = columns(train(settings(**plan), 2), "validation_loss", "rate_factor")
    stages = losses[:3], losses[3:]
    assert factors == [plateau(stage[:n], 1, 2.0) for stage in stages for n in range(3)]
    assert factors[2] < factors[3] == 1.0


def test_it_needs_labels_at_the_server(settings: Settings) -> None:
    with pytest.raises(UserError) as error:
        train(settings(**WILD, validation_fraction=0.0), 2)
    assert str(error.value) == (
        "Setting learning-rate-schedule = 'plateau' needs labeled data at the server and "
        "validation-fraction above 0."
    )
