"""FedLC's client: margins and loss by hand, and training without them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedul_flwr.baselines.fedlc import FedLCClient, margins
from fedul_flwr.baselines.supervised import SupervisedClient
from fedul_flwr.learning.network import Network
from tests.support.local_tasks import task_of
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients

Build = Callable[..., Any]
CPU = torch.device("cpu")


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


def losses(client: Any) -> list[float]:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).requires_grad_(False)
    torch.nn.init.constant_(model[1].weight, 0.01)
    torch.nn.init.zeros_(model[1].bias)
    task, network = task_of(client), Network(model, CPU, "float32")
    return [float(task.loss(network, b)) for b in task.batches(np.random.default_rng(0))]


def test_without_margins_it_is_supervised(client: Build) -> None:
    plain = client(SupervisedClient, method="supervised")
    built = client(FedLCClient, method="fedlc", **{"fedlc.tau": 0.0})
    assert losses(built) == pytest.approx(losses(plain), rel=1e-6)


def test_rare_classes_have_larger_margins(client: Build) -> None:
    """All logits of a point are equal, so that its loss is log Σ exp(−m_k) + m_y."""
    assert margins(np.array([1, 16, 10_000]), 2.0) == pytest.approx([2.0, 1.0, 0.2])
    built = client(FedLCClient, method="fedlc", batch_size=0)
    labels = built.data.examples.labels
    lower = margins(np.bincount(labels, minlength=10), 1.0)
    expected = np.log(np.exp(-lower).sum()) + lower[labels].mean()
    assert losses(built) == [pytest.approx(expected, rel=1e-5)]
