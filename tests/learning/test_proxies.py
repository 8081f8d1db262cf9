"""ProxyFL's loss and its step at the server by its authors' formulas; runs with it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.baselines.class_shares import CLASS_COUNTS, CLASS_SHARES
from fedul_flwr.baselines.proxyfl import ProxyFL
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from fedul_flwr.learning.proxies import ProxyObjective, proxy_contrast, trained_rows
from fedul_flwr.models.parts import Projected, feature_layer, inputs_of
from tests.support.local_tasks import batch_of
from tests.support.runs import last_model, train

Settings = Callable[..., RunConfig]
WIDE: Any = {"dtype": torch.float64}


def authors_contrast(
    features: Tensor, rows: Tensor, posteriors: Tensor, sure: Tensor, shares: Tensor
) -> Tensor:
    """As the paper writes it, point by point."""
    z, proxies = functional.normalize(features), functional.normalize(rows)
    pools = [
        {int(p.argmax())} if is_sure else {k for k in range(len(p)) if p[k] > shares[k]}
        for p, is_sure in zip(posteriors, sure, strict=True)
    ]
    losses = []
    for i, (p, is_sure) in enumerate(zip(posteriors, sure, strict=True)):
        if is_sure:
            positive = z[i] @ proxies[int(p.argmax())]
        else:
            positive = z[i] @ sum((p[k] * proxies[k] for k in pools[i]), torch.zeros_like(z[i]))
        others = [z[i] @ z[j] for j in range(len(z)) if not pools[i] & pools[j]]
        total = positive.exp() + sum(c.exp() for c in others if c >= 1e-6)
        losses.append(-(positive.exp() / total).log())
    return torch.stack(losses)


def test_given_random_points_then_the_contrast_is_the_authors() -> None:
    torch.manual_seed(0)
    features, rows = torch.randn(40, 3, **WIDE), torch.randn(5, 3, **WIDE)
    posteriors, shares = torch.randn(40, 5, **WIDE).mul(2).softmax(1), torch.rand(5, **WIDE)
    sure, shares = posteriors.amax(1) > 0.6, shares / shares.sum()
    assert 5 < int(sure.sum()) < 35
    loss = proxy_contrast(features, rows, posteriors, sure, shares)
    expected = authors_contrast(features, rows, posteriors, sure, shares)
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)


def test_three_points_by_hand() -> None:
    """Of classes at right angles: a sure point of the first, one of the second, and one at 45
    degrees that may be of both. The first two have cosine 0 and do not repel each other."""
    features, root = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]], **WIDE), math.sqrt(0.5)
    posteriors = torch.tensor([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.4, 0.4, 0.2]], **WIDE)
    rows, shares = torch.tensor([[5.0, 0], [0, 1], [-1, 0]], **WIDE), torch.full((3,), 1 / 3)
    sure = torch.tensor([True, True, False])
    loss = proxy_contrast(features, rows, posteriors, sure, shares)
    assert loss.tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    posteriors[2] = torch.tensor([0.4, 0.2, 0.4], **WIDE)  # now the second has no class with it
    loss = proxy_contrast(features, rows, posteriors, sure, shares)
    far = math.exp(root)  # the third one's rows are opposite to each other: its s is 0
    expected = [0.0, -math.log(math.e / (math.e + far)), math.log(1 + far)]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def batch_norm_model() -> nn.Sequential:
    layers = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("projected", [False, True])
def test_given_a_batch_then_the_loss_is_the_authors_formula(projected: bool) -> None:
    torch.manual_seed(1)
    model: nn.Module = batch_norm_model()
    model = Projected(model, 4).double() if projected else model
    received = batch_norm_model().eval()
    inputs, labels = torch.randn(11, 3, **WIDE), torch.tensor([0, 1, 3, *[-1] * 8])
    objective = ProxyObjective(
        received=received,
        shares=torch.tensor([0.1, 0.2, 0.3, 0.4], **WIDE),
        counts=torch.tensor([1.0, 0, 0, 0], **WIDE),
        threshold=0.42,
        supervised_weight=2.0,
        unsupervised_weight=5.0,
        strong_view=lambda u: -u,
        weak_view=lambda u: u + 0.1,
    )
    loss = objective(Network(model.train(), CPU, "float64"), batch_of(inputs, labels))
    u = inputs[3:]
    with inputs_of(feature_layer(model)) as features:
        logits = model(torch.cat([inputs[:3], u + 0.1, -u]))
    z, w = features[0], feature_layer(model).weight
    if isinstance(model, Projected):
        z, w = model.of_features(z), model.of_rows(w)
    p, q = logits[3:11].softmax(1).detach(), logits[11:].softmax(1)
    g = received(torch.cat([inputs[:3], u + 0.1])).softmax(1).detach()
    valid = (p.amax(1) >= 0.42) | (g[3:].amax(1) >= 0.42)
    assert 0 < int(valid.sum()) < 8
    target = functional.one_hot(g[3:].argmax(1), 4) + 1e-10
    kl = (target * (target.log() - (q + 1e-10).log())).sum(1)
    sure = torch.cat([g[:3].amax(1) >= 0.42, valid, valid])
    contrast = authors_contrast(z, w, torch.cat([g, g[3:]]), sure, objective.shares)
    unsupervised = (kl * valid).mean() + contrast[3:].mean()
    expected = 2 * functional.cross_entropy(logits[:3], labels[:3]) + 5 * unsupervised
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    assert objective.confidence.share == pytest.approx(float(valid.double().mean()))
    counts = torch.bincount(torch.cat([labels[:3], g[3:].argmax(1)[valid]]), minlength=4)
    assert objective.counts.tolist() == (counts + torch.tensor([1, 0, 0, 0])).tolist()


class Ordered(np.random.Generator):
    """Draws no order: rows come as they are, then backwards."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64())
        self.turns = 0

    def permutation(self, x: Any, axis: int = 0) -> Any:
        self.turns += 1
        return np.arange(x)[:: 1 if self.turns % 2 else -1]


def authors_rows(mean: Tensor, of_clients: Tensor, rate: float, epochs: int) -> Tensor:
    """With torch's distances, cross-entropy, gradients and SGD."""
    rows, count = nn.Parameter(mean.clone()), len(mean)
    gaps = torch.cdist(mean, mean).fill_diagonal_(math.inf)
    margin = min(float(gaps.amin(1).amax()), 100.0)
    proxies, labels = of_clients.flatten(0, 1), torch.arange(count).repeat(len(of_clients))
    step = torch.optim.SGD([rows], lr=rate)
    for epoch in range(epochs):
        order = torch.arange(len(proxies))
        for batch in (order.flip(0) if epoch % 2 else order).split(4):
            distance = torch.cdist(proxies[batch], rows)
            distance = distance + margin * functional.one_hot(labels[batch], count)
            step.zero_grad()
            functional.cross_entropy(-distance, labels[batch]).backward()
            step.step()
    return rows.detach()


@pytest.mark.parametrize(("clients", "spread"), [(1, 0.0), (3, 0.5), (3, 200.0)])
def test_the_servers_step_is_the_authors(clients: int, spread: float) -> None:
    """With one client every row begins on its target; far rows have the largest margin."""
    torch.manual_seed(2)
    mean = (max(spread, 1) * torch.randn(5, 7, **WIDE)).round(decimals=3)
    of_clients = mean + spread * torch.randn(clients, 5, 7, **WIDE)
    rows = trained_rows(mean.numpy(), of_clients.numpy(), 0.05, 10, Ordered())
    expected = authors_rows(mean, of_clients, 0.05, 10)
    assert rows == pytest.approx(expected.numpy(), abs=1e-6)
    assert not np.array_equal(rows, mean.numpy())


def test_two_rows_by_hand() -> None:
    """Rows at 0 and 1, and a client's at 0.5 and 2: margin 1, distances with it 1.5 and 0.5, and 2
    and 2. Probabilities of the own class are 1/(1 + e) and 1/2."""
    p = 1 / (1 + math.e)
    rows = trained_rows(np.array([[0.0], [1.0]]), np.array([[[0.5], [2.0]]]), 0.1, 1, Ordered())
    step = 0.1 / 2
    expected = [[step * ((1 - p) - 0.5)], [1 + step * ((1 - p) + 0.5)]]
    assert rows == pytest.approx(np.array(expected))


# In runs

QUICK: dict[str, Any] = {
    **{"method": "proxyfl", "model": "mlp+projections", "num_rounds": 4, "local_epochs": 2},
    **{"points_per_client": 60, "labels.total": 60, "proxyfl.threshold": 0.2},
    **{"learning_rate": 0.01, "proxyfl.row-epochs": 5},
}


def test_every_setting_counts(settings: Settings) -> None:
    plain = {**QUICK, "augment": "rotate", "num_rounds": 2}
    more = (
        *({"proxyfl.threshold": 0.8}, {"proxyfl.row-epochs": 6}),
        *({"proxyfl.row-learning-rate": 0.01}, {"views.weak": True}),
    )
    first, *others = (last_model(train(settings(**{**plain, **one}), 2)) for one in ({}, *more))
    for other in others:
        assert not all(np.array_equal(array, other[name]) for name, array in first.items())


def test_the_server_changes_the_rows_alone(settings: Settings) -> None:
    plain = {**QUICK, "num_rounds": 1}
    with_rows, mean = (
        last_model(train(settings(**{**plain, "proxyfl.row-epochs": epochs}), 2))
        for epochs in (5, 0)
    )
    differ = [name for name in mean if not np.array_equal(mean[name], with_rows[name])]
    assert len(differ) == 1
    assert with_rows[differ[0]].shape[0] == 10


def test_class_shares_follow_the_counts_of_each_round(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_rounds, after_round = [], ProxyFL.after_round

    def watched(self: ProxyFL, reports: Any) -> None:
        of_rounds.append(reports[CLASS_COUNTS])
        after_round(self, reports)

    monkeypatch.setattr(ProxyFL, "after_round", watched)
    directory = train(settings(**QUICK), 2)
    shares = np.full(10, 0.1)
    for counts in of_rounds:
        assert counts.sum() >= 60  # labels alone, of both clients, twice
        shares = 0.99 * shares + 0.01 * counts / counts.sum()
    assert load_file(directory / "state-4.safetensors")[CLASS_SHARES] == pytest.approx(shares)
