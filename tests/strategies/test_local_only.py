"""Clients that train alone: plain twins, late first rounds, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from safetensors.numpy import load_file
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, is_train, last_model, metrics, train

Settings = Callable[..., RunConfig]
WIDE: dict[str, Any] = {
    **{"method": "supervised", "optimizer": "sgd", "learning_rate": 0.05, "batch_size": 0},
    **{"local_epochs": 1, "num_rounds": 3, "precision": "float64", "points_per_client": 40},
}
ALONE = {**WIDE, "base": "local", "evaluate": "local"}


def own_model(directory: Path, client: int) -> dict[str, Any]:
    """The model of a client after its last round."""
    files = (directory / "clients" / str(client)).glob("own-model-*.safetensors")
    return load_file(max(files, key=lambda file: int(file.stem.rpartition("-")[2])))


def twins(config: RunConfig, steps: list[int]) -> tuple[list[torch.nn.Module], float]:
    """Models that train alone for so many steps each, and their mean test error."""
    source = load_source("digits")
    clients = build_split(source_directory("digits"), len(steps), config).clients
    tests = to_input(torch.from_numpy(np.asarray(source.test.inputs))).double()
    models, errors = [], []
    for client, count in zip(clients, steps, strict=True):
        model = build_model(config.model, source.input_shape, 10, config.seed).double()
        points = np.unique(client.points)
        inputs = to_input(torch.from_numpy(source.train.inputs[points])).double()
        labels = torch.from_numpy(np.asarray(source.train.labels)[points])
        optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
        model.train()
        for _ in range(count):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        with torch.no_grad():
            guess = model.eval()(tests).argmax(dim=1).numpy()
        models.append(model)
        errors.append(100 * np.mean(guess != np.asarray(source.test.labels)))
    return models, float(np.mean(errors))


def assert_same(arrays: dict[str, Any], model: torch.nn.Module) -> None:
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(arrays[name], value.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", ["mlp", "cnn6-quarter"])  # without and with batch norm
def test_clients_train_as_if_alone(settings: Settings, model: str) -> None:
    config = settings(**ALONE, model=model)
    directory = train(config, 2)
    models, error = twins(config, [3, 3])
    for client, twin in enumerate(models):
        assert_same(own_model(directory, client), twin)
    assert metrics(directory)[-1]["test_error"] == pytest.approx(error)
    # What the others have learned is nowhere: the run's model is the one that all began with.
    fresh = build_model(model, (8, 8, 1), 10, config.seed).double()
    assert_same(last_model(directory), fresh)
    shared = train(settings(**WIDE, model=model), 2)
    name = next(iter(last_model(shared)))
    assert np.abs(last_model(shared)[name] - own_model(directory, 0)[name]).max() > 1e-4


def test_a_client_whose_first_round_comes_late_begins_where_all_did(settings: Settings) -> None:
    rounds: Counter[int] = Counter()
    first: dict[int, int] = {}

    def watch(_: int, replies: list[Message]) -> list[Message]:
        for reply in replies if is_train(replies) else ():
            client = reply.metadata.src_node_id - FIRST_NODE_ID
            rounds[client] += 1
            first.setdefault(client, sum(rounds.values()))
        return replies

    plan = {**ALONE, "model": "mlp", "num_rounds": 6, "fraction_train": 0.25}
    config = settings(**plan)
    directory = train(config, 4, wrap_grid=lambda grid: MeddlingGrid(grid, watch))
    assert len(rounds) > 1  # some began after others had trained
    assert max(rounds.values()) > 1
    models, _ = twins(config, [rounds[client] for client in range(4)])
    for client in rounds:
        assert_same(own_model(directory, client), models[client])


def test_one_client_alone_is_a_federation_of_one(settings: Settings) -> None:
    plan = {"model": "mlp", "num_rounds": 2}
    alone, federation = (train(settings(**{**options, **plan}), 1) for options in (ALONE, WIDE))
    for name, array in last_model(federation).items():
        np.testing.assert_array_equal(array, own_model(alone, 0)[name])
    lines = metrics(federation)
    for line in lines:
        for key in ("bytes_down", "bytes_down_other"):
            line[key] += 8  # that it is to go on from its own model
        line["percent_down"] = 100 * line["bytes_down"] / line["model_bytes"]
        del line["update_norm"]  # there is no global model that could change
    assert metrics(alone) == lines


def test_a_client_labels_its_points_by_its_own_model(settings: Settings) -> None:
    plan = {"method": "pseudo-label", "semi.labels-only-rounds": 1, "labels.total": 20}
    before, after = (
        train(settings(**{**ALONE, **plan, "model": "mlp", "num_rounds": number}), 2)
        for number in (2, 3)
    )
    source = load_source("digits")
    for client in range(2):
        guess = load_file(after / "clients" / str(client) / "pseudo-labels-3.safetensors")
        model = build_model("mlp", source.input_shape, 10).double()
        arrays = own_model(before, client)
        model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        inputs = to_input(torch.from_numpy(source.train.inputs[guess["points"]])).double()
        with torch.no_grad():
            expected = model(inputs).argmax(dim=1).numpy()
        np.testing.assert_array_equal(guess["labels"], expected)


@pytest.mark.parametrize("method", ["xclp", "fedsem", "fedul-mix"])
def test_what_needs_more_than_one_client_is_refused(settings: Settings, method: str) -> None:
    with refuses("method-mismatch", setting="base"):
        train(settings(method=method, base="local", evaluate="local", server_fraction=0.2), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "Setting base = 'local' needs evaluate = 'local': there is no combined model to "
            "measure.",
        ),
        (
            {"evaluate": "local", "test_prior": "em"},
            "Setting test-prior = 'em' asks the combined model, and with base = 'local' there is "
            "none.",
        ),
    ],
)
def test_what_asks_for_a_combined_model_is_refused(
    settings: Settings, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        settings(**options, base="local")
    assert str(error.value) == message
