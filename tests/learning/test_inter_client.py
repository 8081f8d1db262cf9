"""Inter-client consistency: votes, divergence, the whole loss by hand; what has gradients."""

import math
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.helpers import (
    InterClientConsistency,
    Ties,
    agreed_labels,
    helper_divergence,
)
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from fedul_flwr.learning.randaugment import randaugment

# Votes


@pytest.mark.parametrize("ties", ["own", "lowest"])
@hypothesis_settings(max_examples=100, deadline=None)
@given(points=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=7), min_size=1, max_size=5))
def test_votes_against_counting(ties: Ties, points: list[list[int]]) -> None:
    voters = min(map(len, points))
    columns = [torch.tensor([votes[i] for votes in points]) for i in range(voters)]
    found = agreed_labels(columns[0], columns[1:], 4, ties)
    assert found.dtype == torch.int64
    for votes, label in zip(points, found.tolist(), strict=True):
        counts = Counter(votes[:voters])
        most = {k for k, count in counts.items() if count == max(counts.values())}
        assert label == (votes[0] if ties == "own" and votes[0] in most else min(most))


# Divergence


def test_divergence_by_hand() -> None:
    # One point, p = (.5, .5). Helpers (.8, .2) and (.5, .5):
    # KL = .8·log 1.6 + .2·log .4 = .376003 − .183258 = .192745, and 0; their mean is .096372.
    own = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()
    one = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    assert float(helper_divergence(own, [one, own])) == pytest.approx(0.096372, abs=1e-6)
    assert float(helper_divergence(own, [one])) == pytest.approx(0.192745, abs=1e-6)
    # It is KL[p_h ‖ p], not KL[p ‖ p_h] = .5·log .625 + .5·log 2.5 = .223144; mean over points.
    pair = helper_divergence(torch.cat([own, own]), [torch.cat([one, own])])
    assert float(pair) == pytest.approx(0.096372, abs=1e-6)
    assert float(helper_divergence(one, [own])) == pytest.approx(0.223144, abs=1e-6)


# The whole loss


class Table(nn.Module):
    """Logits of point i, an image of one pixel i; of the view -i they are those of row -i."""

    def __init__(self, probabilities: Any) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities, dtype=torch.float64).log())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.logits[inputs.flatten().long()]


def wide(model: nn.Module) -> Network:
    return Network(model, CPU, "float64")


def mirrored(inputs: Tensor) -> Tensor:
    """Strong views of images of one pixel i: images of -i."""
    return -inputs


# Rows: unused, point 1, point 2, point 3; strong views of points 3, 2, 1 (rows -3, -2, -1).
OWN = [(0.5, 0.5), (0.9, 0.1), (0.6, 0.4), (0.2, 0.8), (0.3, 0.7), (0.5, 0.5), (0.25, 0.75)]
FIRST = [(0.5, 0.5), (0.3, 0.7), (0.5, 0.5), (0.4, 0.6), *[(0.5, 0.5)] * 3]
SECOND = [(0.5, 0.5), (0.2, 0.8), (0.5, 0.5), (0.9, 0.1), *[(0.5, 0.5)] * 3]
POINTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).view(3, 1, 1, 1)


def test_the_loss_by_hand() -> None:
    # tau = .75 keeps points 1 (class 0) and 3 (class 1). Helpers outvote the model at point 1:
    # class 1. At point 3 they are for 1 and 0: class 1. Cross-entropy of the strong views:
    # (-log .75 − log .7) / 2 = (.287682 + .356675) / 2 = .322179.
    # Divergences from p(u): point 1 (.9, .1): (.3, .7): .3·log(1/3) + .7·log 7 = 1.032554,
    # (.2, .8): .2·log(2/9) + .8·log 8 = 1.362738; point 3 (.2, .8): (.4, .6): .4·log 2 +
    # .6·log .75 = .104650, (.9, .1): .9·log 4.5 + .1·log .125 = 1.145725.
    # Mean over points and helpers: 3.645667 / 4 = .911417. All by 0.01.
    helpers = [Table(FIRST), Table(SECOND)]
    consistency = InterClientConsistency(helpers, 0.01, 0.75, mirrored)
    loss = consistency(wide(Table(OWN)), POINTS)
    assert loss is not None
    assert float(loss.detach()) == pytest.approx(0.01 * (0.322179 + 0.911417), abs=1e-8)
    assert consistency.confidence.share == pytest.approx(2 / 3)


def test_the_loss_without_helpers_by_hand() -> None:
    # Labels 0 and 1 of the model itself: (-log .25 − log .7) / 2 = (1.386294 + .356675) / 2.
    model = Table(OWN)
    loss = InterClientConsistency([], 2.0, 0.75, mirrored)(wide(model), POINTS)
    assert loss is not None
    assert float(loss.detach()) == pytest.approx(2 * 0.871485, abs=1e-5)
    loss.backward()
    # Gradients through strong views alone: 2·(p − one-hot)/2 at rows -1 (point 1) and -3.
    expected = np.zeros((7, 2))
    expected[6], expected[4] = (-0.75, 0.75), (0.3, -0.3)
    np.testing.assert_allclose(model.logits.grad, expected, atol=1e-12)


def test_confidence_at_the_threshold_counts() -> None:
    model = Table([(0.5, 0.5)] * 7)
    for threshold, confident in ((0.5, 3), (0.5000001, 0)):
        consistency = InterClientConsistency([], 1.0, threshold, mirrored)
        loss = consistency(wide(model), POINTS)
        assert (loss is None) == (confident == 0)
        assert consistency.confidence.share == pytest.approx(confident / 3)
        consistency(wide(model), POINTS)
        assert consistency.confidence.share == pytest.approx(2 * confident / 6)


def test_of_no_weight_there_is_no_loss_and_no_point_is_looked_at() -> None:
    consistency = InterClientConsistency([Table(FIRST)], 0.0, 0.75, mirrored)
    assert consistency(wide(Table(OWN)), POINTS) is None
    assert consistency.confidence.share == 0
    model = network(batch_norm=True)
    before = {name: array.clone() for name, array in model.state_dict().items()}
    assert InterClientConsistency([], 0.0, 0.0)(narrow(model), images(8)) is None
    assert all(array.equal(before[name]) for name, array in model.state_dict().items())
    InterClientConsistency([], 1.0, 0.0)(narrow(model), images(8))
    assert not all(array.equal(before[name]) for name, array in model.state_dict().items())


# On networks


def network(*, seed: int = 0, batch_norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3) if batch_norm else nn.Identity(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(3 * 16, 4),
            nn.BatchNorm1d(4) if batch_norm else nn.Identity(),
        )


def images(count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (count, 1, 6, 6))).float()


def narrow(model: nn.Module) -> Network:
    return Network(model, CPU, "float32")


def running(model: nn.Module) -> list[Tensor]:
    return [b.clone() for name, b in model.named_buffers() if "running" in name]


def test_batch_norm_follows_the_points_and_not_their_views() -> None:
    helper, model, other = (network(seed=seed).train() for seed in (1, 0, 0))
    before = running(helper)
    InterClientConsistency([helper], 1.0, 0.0)(narrow(model), images(8))
    other(images(8))
    for found, expected in zip(running(model), running(other), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(running(helper), before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("helpers", [0, 2])
def test_one_point_is_enough_for_batch_norm(helpers: int) -> None:
    model = network()
    others = [network(seed=seed + 1) for seed in range(helpers)]
    loss = InterClientConsistency(others, 1.0, 0.0)(narrow(model), images(1))
    assert loss is not None
    loss.backward()
    assert math.isfinite(float(loss.detach()))


def test_helpers_have_no_dropout_and_no_other_part_in_the_gradient() -> None:
    """The gradient is that of eq. 2 written down plainly, with helpers in evaluation mode."""
    model = network(batch_norm=False).double()
    helpers = [network(seed=s, batch_norm=False, dropout=0.9).double().train() for s in (1, 2)]
    inputs = images(20).double()
    torch.manual_seed(5)
    views = partial(randaugment, num_operations=3, magnitudes=(1, 9))
    consistency = InterClientConsistency(helpers, 0.3, 0.4, views)
    loss = consistency(wide(model), inputs)
    assert loss is not None
    gradients = torch.autograd.grad(loss, list(model.parameters()))

    p = model(inputs).softmax(dim=1)
    sure = p.detach().amax(dim=1) >= 0.4
    assert 0 < sure.sum() < 20
    frozen = [helper.eval()(inputs[sure]).softmax(dim=1).detach() for helper in helpers]
    votes = torch.stack([p[sure].detach(), *frozen]).argmax(dim=2)
    labels = [Counter(column.tolist()).most_common(1)[0][0] for column in votes.T]  # first is own
    torch.manual_seed(5)
    strong = randaugment(inputs[sure], 3, (1, 9))
    phi = functional.cross_entropy(model(strong), torch.tensor(labels))
    phi = phi + sum((q * (q / p[sure]).log()).sum() for q in frozen) / (2 * int(sure.sum()))
    expected = torch.autograd.grad(0.3 * phi, list(model.parameters()))
    assert float(loss.detach()) == pytest.approx(float(0.3 * phi.detach()), rel=1e-12)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
