"""SAGE's target and loss by its authors' formula; runs with it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.matching import SageObjective, corrected_target
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from tests.support.local_tasks import batch_of
from tests.support.refusals import refuses
from tests.support.runs import last_model, train

Settings = Callable[..., RunConfig]
WIDE: Any = {"dtype": torch.float64}


def authors_target(local: Tensor, received: Tensor, threshold: float) -> Tensor:
    """As the paper writes it, point by point."""
    rows = []
    for p, g in zip(local.tolist(), received.tolist(), strict=True):
        one = [float(k == int(np.argmax(p))) for k in range(len(p))]
        two = [float(k == int(np.argmax(g))) for k in range(len(p))]
        delta = min(max(abs(max(p) - max(g)) + 1e-6, 1e-6), 1.0)
        lam = min(max(math.exp(-math.log(2) / 0.05 * delta), 1e-6), 1.0)
        mixed = [lam * a + (1 - lam) * b for a, b in zip(one, two, strict=True)]
        rows.append(mixed if max(p) >= threshold else two)
    return torch.tensor(rows, **WIDE)


@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.6, 0.95])
def test_given_random_posteriors_then_targets_are_the_authors(threshold: float) -> None:
    torch.manual_seed(0)
    local, received = (torch.randn(200, 4, **WIDE).mul(2).softmax(1) for _ in "ab")
    target, counts = corrected_target(local, received, threshold)
    expected = authors_target(local, received, threshold)
    torch.testing.assert_close(target, expected, atol=1e-12, rtol=0)
    sure = (local.amax(1) >= threshold) | (received.amax(1) >= threshold)
    assert torch.equal(counts, sure)
    torch.testing.assert_close(target.sum(1), torch.ones(200, **WIDE))


def test_given_a_batch_then_the_loss_is_the_authors_formula() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)).double()
    received = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)).double().eval()
    inputs, labels = torch.randn(9, 3, **WIDE), torch.tensor([0, 1, 3, -1, -1, -1, -1, -1, -1])
    objective = SageObjective(
        received=received,
        threshold=0.3,
        supervised_weight=2.0,
        unsupervised_weight=5.0,
        strong_view=lambda u: -u,
        weak_view=lambda u: u + 0.1,
    )
    found = objective(Network(model.train(), CPU, "float64"), batch_of(inputs, labels))
    u = inputs[3:]
    logits = model(torch.cat([inputs[:3], u + 0.1, -u]))
    p, q = logits[3:9].softmax(1).detach(), logits[9:].softmax(1)
    g = received(u + 0.1).softmax(1)
    target = authors_target(p, g, 0.3)
    mask = ((p.amax(1) >= 0.3) | (g.amax(1) >= 0.3)).double()
    kl = ((target + 1e-10) * ((target + 1e-10).log() - (q + 1e-10).log())).sum(1)
    expected = 2 * functional.cross_entropy(logits[:3], labels[:3]) + 5 * (kl * mask).mean()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-5)
    assert objective.confidence.share == pytest.approx(float(mask.mean()))


# In runs

QUICK: dict[str, Any] = {
    **{"method": "sage", "model": "mlp", "num_rounds": 4, "local_epochs": 2},
    **{"points_per_client": 60, "labels.total": 60, "sage.threshold": 0.2, "learning_rate": 0.01},
}


def test_every_setting_counts(settings: Settings) -> None:
    plain = {**QUICK, "augment": "rotate", "num_rounds": 2}
    more = {"sage.threshold": 0.8}, {"views.weak": True}, {"ssl.unsupervised-weight": 9.0}
    first, *others = (last_model(train(settings(**{**plain, **one}), 2)) for one in ({}, *more))
    for other in others:
        assert not all(np.array_equal(array, other[name]) for name, array in first.items())


@pytest.mark.parametrize("threshold", [1.0, -0.1])
def test_a_threshold_for_none_or_all_is_refused(settings: Settings, threshold: float) -> None:
    with refuses("setting-out-of-range", setting="sage.threshold"):
        settings(**{**QUICK, "sage.threshold": threshold})
