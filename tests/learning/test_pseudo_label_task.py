"""Which pseudo labels are trained on, with which weights, and the loss of a batch of them."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.config.method_settings import LabelsOnlySettings, PseudoLabelSettings, StageSettings
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.learning.pseudo_labels import (
    PseudoLabels,
    WeightedPoints,
    weighted_cross_entropy,
    weighted_points,
    weighted_task,
)
from fedul_flwr.learning.task import Batch

INPUTS = np.zeros((9, 1, 1, 1), np.uint8)
LABELED, LABELS = np.array([8]), np.array([1])
UNLABELED = np.array([0, 1, 2, 3, 4])
FOUND = PseudoLabels(np.array([0, -1, 1, 0, 1]), np.array([0.5, 0.9, 0.0, 0.25, 0.75]))
"""Point 1 has no label, and of that of point 2 nothing is certain."""


def points(settings: StageSettings, found: PseudoLabels = FOUND) -> WeightedPoints:
    return weighted_points(INPUTS, LABELED, LABELS, UNLABELED, found, settings)


def test_given_labels_without_confidence_then_they_are_left_out() -> None:
    found = points(PseudoLabelSettings())
    assert found.points.tolist() == [8, 0, 3, 4]
    assert found.classes.tolist() == [1, 0, 0, 1]
    assert found.weights.tolist() == [1.0, 0.5, 0.25, 0.75]
    assert found.num_labeled == 1


def test_given_a_divisor_then_confidences_are_divided_by_it() -> None:
    found = points(PseudoLabelSettings(), replace(FOUND, divisor=0.9))
    assert found.weights.tolist() == [1.0, 0.5 / 0.9, 0.25 / 0.9, 0.75 / 0.9]


@pytest.mark.parametrize(
    ("recipe", "num_labeled", "size"),
    [("paper", 0, 2), ("release", 0, 4), ("paper", 3, 4), ("release", 3, 4)],
)
def test_given_a_client_without_labels_then_its_batches_are_as_large_as_others_in_the_release(
    recipe: Literal["paper", "release"], num_labeled: int, size: int
) -> None:
    settings = PseudoLabelSettings(recipe=recipe)
    data = WeightedPoints(INPUTS, np.arange(9), np.zeros(9, np.int64), np.ones(9), num_labeled)
    batches = weighted_task(data, settings, LocalPlan(batch_size=2)).batches
    assert {len(at) for _, at, _ in batches(np.random.default_rng(0))} == {size}


def test_given_a_focal_loss_then_points_count_less_the_surer_their_label_is() -> None:
    options = LabelsOnlySettings(focal_gamma=2.0)
    data = WeightedPoints(INPUTS, np.arange(2), np.array([0, 1]), np.ones(2), 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[math.log(3.0)], [0.0]]))
    objective = weighted_task(data, StageSettings(), LocalPlan(), options).loss
    network = Network(model, CPU, "float32")
    targets = torch.tensor([[0.0, 1.0], [1.0, 1.0]])  # classes and weights
    # Probabilities 3/4 of class 0 and 1/4 of class 1: -(1/4)^2 log(3/4) and -(3/4)^2 log(1/4).
    found = float(objective(network, Batch(torch.ones(2, 1, 1, 1), targets)).detach())
    expected = (-(0.25**2) * math.log(0.75) - 0.75**2 * math.log(0.25)) / 2
    assert found == pytest.approx(expected, rel=1e-6)
    sure = torch.full((2, 1, 1, 1), 1e6).requires_grad_()
    value = objective(network, Batch(sure, torch.tensor([[0.0, 1.0], [0.0, 1.0]])))
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == 0
    assert sure.grad is not None
    assert torch.isfinite(sure.grad).all()


LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WEIGHTED_LABELS = torch.tensor([0, 1, 2, 3, 1, 0])


def test_a_loss_by_hand() -> None:
    # Softmax (3/4, 1/4) and (1/2, 1/2): losses log 4 and log 2, over two points.
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    found = weighted_cross_entropy(logits, torch.tensor([1, 0]), torch.tensor([0.5, 0.25]))
    assert float(found) == pytest.approx((0.5 * math.log(4) + 0.25 * math.log(2)) / 2)


def test_a_point_without_weight_teaches_nothing() -> None:
    logits = LOGITS.clone().requires_grad_()
    weights = torch.tensor([1.0, 0.0, 0.3, 0.7, 0.0, 1.0])
    weighted_cross_entropy(logits, WEIGHTED_LABELS, weights).backward()
    assert logits.grad is not None
    sizes = logits.grad.abs().sum(dim=1)
    assert (sizes == 0).tolist() == [False, True, False, False, True, False]
    # The gradient of a point is weight · (softmax − one-hot) / b.
    expected = weights[:, None] * (LOGITS.softmax(1) - functional.one_hot(WEIGHTED_LABELS, 4)) / 6
    torch.testing.assert_close(logits.grad, expected)
