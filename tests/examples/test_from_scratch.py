"""The methods on one page give the product's weights: same data, same seed, two rounds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp.strategy import FedAvg
from torch import nn

import fedul_flwr as ff
from fedul_flwr.data.seeds import stream
from fedul_flwr.engine.in_process import InProcessGrid
from fedul_flwr.engine.local_grid import task_identity

EXAMPLES = Path(__file__).parents[2] / "examples"
PRIORS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
OPTIONS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01}
SETTINGS = {"local_epochs": 2, "batch_size": 8, "learning_rate": 0.01}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 7), nn.Tanh(), nn.Linear(7, num_classes))


def sets_of(client: int) -> list[Any]:
    """Three sets of different sizes."""
    rng = np.random.default_rng(client)
    sizes = 12 + 5 * np.arange(3)
    return [rng.normal(m, 1, (int(n) + client, 4)).astype(np.float32) for m, n in enumerate(sizes)]


def local_draws(client: int, number: int) -> np.random.Generator:
    """The product's random numbers of a client in a round; it draws a seed for dropout first."""
    rng = stream(0, "local", number, client)
    rng.integers(2**63)
    return rng


def run(strategy: Any, app: Any, model: nn.Module, clients: int) -> dict[str, torch.Tensor]:
    with task_identity():
        grid = InProcessGrid(app, clients, {})
        first = ArrayRecord(model.state_dict())
        return dict(strategy.start(grid, first, num_rounds=2).arrays.to_torch_state_dict())


def test_given_fedul_then_its_page_has_the_products_weights() -> None:
    def client(context: Context) -> ff.FedULClient:
        return ff.FedULClient(sets_of(int(context.node_config["partition-id"])), PRIORS)

    page = example("fedul_from_scratch")
    torch.manual_seed(0)
    model = network((4,), 3)
    strategy = ff.FedUL(
        FedAvg(),
        model=network,
        input_shape=(4,),
        classes=3,
        settings={**SETTINGS, "test_prior": "uniform"},
    )
    product = run(strategy, ff.make_client_app(client), model, clients=2)

    pi = torch.full((3,), 1 / 3, dtype=torch.float64)
    for number in (1, 2):
        updates = []
        for position in (0, 1):
            sets = sets_of(position)
            n = torch.tensor([len(points) for points in sets])
            m = torch.repeat_interleave(torch.arange(3), n)
            local = network((4,), 3)
            local.load_state_dict(model.state_dict())
            log_Q = page.log_transition(torch.from_numpy(PRIORS), n, pi).float()
            x = torch.from_numpy(np.concatenate(sets))
            page.train_client(local, x, m, log_Q, local_draws(position, number), **OPTIONS)
            updates.append(local.state_dict())
        model.load_state_dict(page.federated_averaging(updates))
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(product[name], weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*_scratch.py"))])
def test_given_a_page_then_it_is_short_and_imports_nothing_of_ours(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= (200 if "fedmatch" in name else 150)
    assert "fedul_flwr" not in text
