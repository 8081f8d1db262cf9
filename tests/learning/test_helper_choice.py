"""Helpers: nearest clients against brute force, ties and strangers; what a server remembers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.device import move_model
from fedul_flwr.learning.helpers import HelperChoice, embed, nearest_clients, noise_point
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.models import build_model

Settings = Callable[..., RunConfig]
SHAPE = (6, 6, 1)


def at(**places: float) -> dict[int, NDArray[np.float64]]:
    """Embeddings on a line: ``at(c3=0.5)`` puts client 3 at (0.5, 0.5)."""
    return {int(name[1:]): np.array([x, 1 - x]) for name, x in places.items()}


@pytest.mark.parametrize("seed", range(5))
def test_nearest_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = rng.choice(1000, 60, replace=False).tolist()
    embeddings = {client: rng.dirichlet(np.ones(10)) for client in clients}
    for client in clients:
        others = [other for other in clients if other != client]
        others.sort(key=lambda o: float(np.linalg.norm(embeddings[o] - embeddings[client])))
        for count in (1, 2, 7):
            assert nearest_clients(embeddings, client, count) == others[:count]


# The server's


@pytest.fixture
def choice(settings: Settings) -> Callable[..., HelperChoice]:
    def build(**options: Any) -> HelperChoice:
        return HelperChoice(settings(model="mlp", **options), SHAPE, 4)

    return build


def model(seed: int, scale: float = 1.0) -> dict[str, Any]:
    arrays = dump_arrays(build_model("mlp", SHAPE, 4, seed=seed))
    return {name: np.asarray(array * scale) for name, array in arrays.items()}


Choice = Callable[..., HelperChoice]


def test_models_that_are_alike_help_each_other(choice: Choice) -> None:
    built = choice()
    near = {name: array + 1e-3 for name, array in model(0).items()}
    for client, arrays in enumerate([model(0), model(1, 3.0), near, model(2, 3.0)]):
        built.embed(client, arrays)
    everyone = dict.fromkeys(range(4), 1)
    assert built.helpers_of(0, 1, everyone) == [2]
    assert built.helpers_of(2, 1, everyone) == [0]
    # Of those in question alone: what is not known to be held cannot be sent.
    assert built.helpers_of(0, 2, {0: 1, 1: 1, 3: 1}) in ([1, 3], [3, 1])
    assert built.helpers_of(0, 2, {1: 1, 2: 1}) == []
    assert built.helpers_of(9, 2, everyone) == []


def test_who_is_forgotten_helps_nobody_until_it_is_embedded_again(choice: Choice) -> None:
    built = choice()
    for client in range(3):
        built.embed(client, model(client))
    everyone = dict.fromkeys(range(3), 1)
    built.forget(2)
    built.forget(9)  # who was never embedded
    assert built.helpers_of(0, 2, everyone) == [1]
    assert built.helpers_of(2, 2, everyone) == []
    built.embed(2, model(2))
    assert sorted(built.helpers_of(0, 2, everyone)) == [1, 2]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_it_is_of_the_model_in_use(precision: str) -> None:
    dtype = getattr(torch, precision)
    """Dropout and batch norm as in prediction, and neither model nor statistics change."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 4)
    model = move_model(nn.Sequential(*layers), CPU, precision).train()
    plan, noise = (
        replace(LocalPlan(), precision=precision),
        noise_point((4, 4, 2), np.random.default_rng(2)),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = embed(model, noise, plan)
    with torch.no_grad():
        expected = model.eval()(noise.to(dtype)).softmax(dim=1)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(embed(model.train(), noise, plan), found)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    model(noise.to(dtype)).sum().backward()  # it can still be trained
