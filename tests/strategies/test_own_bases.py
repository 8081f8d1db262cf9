"""SCAFFOLD and FedNova: degenerate cases, hand calculations, a plain twin, and use on their own."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from tests.support.runs import last_model, metrics, same, train
from tests.support.settings import Settings

SGD = {
    **{"model": "mlp", "optimizer": "sgd", "learning_rate": 0.1},
    **{"num_rounds": 1, "local_epochs": 1, "points_per_client": 120},
}
WIDE = {**SGD, "precision": "float64", "batch_size": 0, "local_epochs": 2, "num_rounds": 3}


# FedNova


def test_fednova_with_equal_steps_is_fedavg(settings: Settings) -> None:
    options = {**SGD, "num_rounds": 2, "client_weights": "examples"}
    equal = {**options, "batch_size": 0, "local_epochs": 3, "momentum": 0.5}
    plain, nova = (train(settings(**equal, base=base), 3) for base in ("fedavg", "fednova"))
    assert [line["steps"] for line in metrics(plain)] == [3.0, 3.0]
    assert same(plain, nova)
    # Clients of different sizes make different numbers of steps.
    uneven = {**options, "partition": "dirichlet", "dirichlet.alpha": 0.3, "points_per_client": 0}
    assert not same(train(settings(**uneven), 3), train(settings(**uneven, base="fednova"), 3))


# SCAFFOLD


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_with_zero_variates_is_fedavg(settings: Settings, option: str) -> None:
    """All variates are zero in the first round."""
    # Option I looks at its gradient first, and then trains with other random numbers.
    whole = {**SGD, "batch_size": 0} if option == "I" else SGD
    plain = train(settings(**whole), 3)
    scaffold = train(settings(**whole, base="scaffold", **{"scaffold.option": option}), 3)
    if option == "II":
        assert same(plain, scaffold)
    for name, array in last_model(plain).items():
        np.testing.assert_allclose(array, last_model(scaffold)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("option", "momentum"), [("I", 0.0), ("II", 0.0), ("II", 0.5)])
def test_scaffold_equals_a_plain_loop(settings: Settings, option: str, momentum: float) -> None:
    config = settings(
        **{**WIDE, "method": "supervised", "base": "scaffold", "momentum": momentum},
        **{"scaffold.option": option},
    )
    directory = train(config, 3)

    source = load_source("digits")
    clients = build_split(source_directory("digits"), 3, config).clients
    model = build_model("mlp", source.input_shape, 10, config.seed).double()
    x = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    c = {name: torch.zeros_like(weight) for name, weight in x.items()}
    own = [copy.deepcopy(c) for _ in clients]

    def gradient(weights: dict[str, torch.Tensor], points: Any) -> dict[str, torch.Tensor]:
        inputs = to_input(torch.from_numpy(source.train.inputs[points])).double()
        labels = torch.from_numpy(np.asarray(source.train.labels)[points])
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        loss = functional.cross_entropy(torch.func.functional_call(model, leaves, inputs), labels)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    for _ in range(3):
        ends, changes = [], []
        for index, client in enumerate(clients):
            points, y = np.unique(client.points), x
            v = {n: torch.zeros_like(weight) for n, weight in x.items()}
            for _ in range(2):  # v ← momentum·v + g − c_i + c, y ← y − eta·v
                g = gradient(y, points)
                v = {n: momentum * v[n] + g[n] - own[index][n] + c[n] for n in y}
                y = {n: y[n] - 0.1 * v[n] for n in y}
            if option == "I":
                new = gradient(x, points)
            else:  # c_i − c + (x − y)/(a·eta); of two equal steps the second is 1 + momentum long
                a = 1 + (1 + momentum)
                new = {n: own[index][n] - c[n] + (x[n] - y[n]) / (a * 0.1) for n in y}
            changes.append({n: new[n] - own[index][n] for n in new})
            own[index] = new
            ends.append(y)
        x = {n: sum(y[n] for y in ends) / 3 for n in x}
        c = {n: c[n] + sum(change[n] for change in changes) / 3 for n in c}
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, x[name].numpy(), rtol=1e-6, atol=1e-8)
