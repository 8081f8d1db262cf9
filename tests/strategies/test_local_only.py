"""Clients that train alone: plain twins, late first rounds, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source
from fedul_flwr.learning.batches import to_input
from tests.support.plain_loops import fresh, split_of, step
from tests.support.refusals import refuses
from tests.support.runs import assert_same_arrays, last_model, metrics, train
from tests.support.settings import Settings

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
    tests = to_input(torch.from_numpy(np.asarray(source.test.inputs))).double()
    models, errors = [], []
    for client, count in zip(split_of(config, len(steps)).clients, steps, strict=True):
        model = fresh(config).train()
        for _ in range(count):
            step(model, np.unique(client.points), config.learning_rate)
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
    assert_same(last_model(directory), fresh(config))
    shared = train(settings(**WIDE, model=model), 2)
    name = next(iter(last_model(shared)))
    assert np.abs(last_model(shared)[name] - own_model(directory, 0)[name]).max() > 1e-4


def test_one_client_alone_is_a_federation_of_one(settings: Settings) -> None:
    plan = {"model": "mlp", "num_rounds": 2}
    alone, federation = (train(settings(**{**options, **plan}), 1) for options in (ALONE, WIDE))
    assert_same_arrays(last_model(federation), own_model(alone, 0))
    lines = metrics(federation)
    for line in lines:
        for key in ("bytes_down", "bytes_down_other"):
            line[key] += 8  # that it is to go on from its own model
        line["percent_down"] = 100 * line["bytes_down"] / line["model_bytes"]
        del line["update_norm"]  # there is no global model that could change
    assert metrics(alone) == lines


@pytest.mark.parametrize("method", ["xclp", "fedsem", "fedul-mix"])
def test_what_needs_more_than_one_client_is_refused(settings: Settings, method: str) -> None:
    with refuses("method-mismatch", setting="base"):
        train(settings(method=method, base="local", evaluate="local", server_fraction=0.2), 2)
