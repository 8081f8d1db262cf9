"""DSQ and ROT at clients: their losses by hand and by the formulas of the released code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedul_flwr.baselines.fedllp import FedLLPClient
from fedul_flwr.baselines.fedllp_dsq import FedLLPDSQClient, debiased_square_loss
from fedul_flwr.baselines.fedllp_rot import FedLLPROTClient, transported_classes
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients

Build = Callable[..., Any]
SETS = {"fedul.num-sets": 12}


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


def drawn(sizes: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of bags of these sizes, in mixed order, targets of set and bag, and shares of sets."""
    rng = np.random.default_rng(seed)
    bags = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    sets = np.array([2, 0, 3, 1])[bags]
    logits = torch.from_numpy(rng.normal(size=(len(bags), 3)))
    priors = torch.from_numpy(rng.dirichlet(np.ones(3), 4))
    return logits, torch.from_numpy(np.column_stack([sets, bags])), priors


def test_the_square_is_that_of_the_released_formula() -> None:
    """LLP_DSQ.DSQ_Loss: (mean of k_i · MSE_i − mean of (k_i − 1) · MSE of the batch) · K."""
    sizes = [5, 3, 9, 4]
    logits, targets, priors = drawn(sizes)
    predicted, bags = logits.softmax(dim=1).numpy(), targets[:, 1].numpy()
    shares = priors[[2, 0, 3, 1]].numpy()
    means = np.stack([predicted[bags == bag].mean(axis=0) for bag in range(4)])
    first = np.mean(np.array(sizes) * ((means - shares) ** 2).mean(axis=1))
    prior = np.average(shares, axis=0, weights=sizes)
    second = np.mean(np.array(sizes) - 1) * ((predicted.mean(axis=0) - prior) ** 2).mean()
    ours = debiased_square_loss(logits, targets, priors)
    assert float(ours) == pytest.approx((first - second) * 3, rel=1e-9)


def test_the_square_has_no_bias() -> None:
    """Over draws of bags from two classes its mean is that of |p(x) − y|², less its noise.

    A model that says (q, 1 − q) of each point, and points of class 0 with probability s in each of
    many bags: k |q − share|² has the mean k (q − s)² + s (1 − s), twice for two classes; what is
    taken off has (k − 1) (q − s)². Their difference: 2 (q − s)² + 2 s (1 − s).
    """
    q, s, k, count = 0.7, 0.4, 6, 4000
    shares = np.random.default_rng(0).binomial(k, s, count) / k
    priors = torch.from_numpy(np.column_stack([shares, 1 - shares]))
    logits = torch.log(torch.tensor([[q, 1 - q]], dtype=torch.float64)).repeat(k * count, 1)
    bags = torch.arange(count).repeat_interleave(k)
    loss = debiased_square_loss(logits, torch.stack([bags, bags], dim=1), priors)
    assert float(loss) == pytest.approx(2 * (q - s) ** 2 + 2 * s * (1 - s), rel=0.03)


def test_the_square_of_one_bag_is_plain(client: Build) -> None:
    built = client(FedLLPDSQClient, method="fedllp-dsq", **SETS)
    size = int(built.data.sets.set_sizes[3])
    logits = torch.randn(size, 10)
    gap = logits.softmax(dim=1).mean(dim=0) - torch.from_numpy(built.data.sets.priors[3])
    loss = built.loss()(logits, torch.full((size,), 3))
    assert float(loss) == pytest.approx(float(gap.square().sum()), rel=1e-5)


def test_classes_are_transported_as_in_the_released_formula() -> None:
    """ROT._distributed_sinkhorn: rows to 1, columns to 1, columns to their shares; at last rows."""
    rng = np.random.default_rng(1)
    predicted, shares = rng.dirichlet(np.full(4, 0.5), 30), np.array([0.5, 0.3, 0.2, 0.0])
    scaled = np.maximum(predicted, 1e-12)
    for _ in range(3):
        scaled /= scaled.sum(axis=1, keepdims=True)
        scaled /= np.maximum(scaled.sum(axis=0, keepdims=True), 1e-12)
        scaled *= shares
    expected = (scaled / scaled.sum(axis=1, keepdims=True)).argmax(axis=1)
    ours = transported_classes(torch.from_numpy(predicted), torch.from_numpy(shares), 3)
    assert ours.tolist() == expected.tolist()
    assert 3 not in ours  # a class without a share is nobody's


def test_classes_of_two_points_by_hand() -> None:
    """Both look like class 0, of which the bag has a half: the surer one keeps it.

    Columns sum to 1.7 and 0.3: half of each, (0.9, 0.1) becomes (9/34, 1/6), (0.8, 0.2) becomes
    (8/34, 1/3).
    """
    predicted = torch.tensor([[0.9, 0.1], [0.8, 0.2]], dtype=torch.float64)
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert transported_classes(predicted, half, 1).tolist() == [0, 1]
    assert transported_classes(predicted, torch.tensor([1.0, 0.0]), 1).tolist() == [0, 0]


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_the_loss_of_transport_is_a_mean_of_both(client: Build, weight: float) -> None:
    built = client(FedLLPROTClient, method="fedllp-rot", **SETS, **{"fedllp-rot.weight": weight})
    sets = built.data.sets
    logits = torch.randn(int(sets.set_sizes[3]), 10, requires_grad=True)
    targets = torch.full((len(logits),), 3)
    of_shares = FedLLPClient.loss(built)(logits, targets)
    shares = torch.from_numpy(sets.priors[3])
    classes = transported_classes(logits.detach().double().softmax(dim=1), shares, 3)
    expected = (1 - weight) * of_shares + weight * functional.cross_entropy(logits, classes)
    torch.testing.assert_close(built.loss()(logits, targets), expected)
