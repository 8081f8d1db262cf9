"""Weighted cross-entropy and class weights, by hand and as identities."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from fedul_flwr.learning.pseudo_label_task import (
    scaled_cross_entropy,
    weighted_cross_entropy,
)

LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 3, 1, 0])


def test_a_loss_by_hand() -> None:
    # Softmax (3/4, 1/4) and (1/2, 1/2): losses log 4 and log 2, over two points.
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    found = weighted_cross_entropy(logits, torch.tensor([1, 0]), torch.tensor([0.5, 0.25]))
    assert float(found) == pytest.approx((0.5 * math.log(4) + 0.25 * math.log(2)) / 2)


def test_a_scaled_loss_by_hand() -> None:
    # Probabilities 1/4 and 1/2 of the labels: 10·(log 4 + log 2)/2.
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    found = scaled_cross_entropy(10.0)(logits, torch.tensor([1, 0]))
    assert float(found) == pytest.approx(15 * math.log(2))


def test_a_point_without_weight_teaches_nothing() -> None:
    logits = LOGITS.clone().requires_grad_()
    weights = torch.tensor([1.0, 0.0, 0.3, 0.7, 0.0, 1.0])
    weighted_cross_entropy(logits, LABELS, weights).backward()
    assert logits.grad is not None
    sizes = logits.grad.abs().sum(dim=1)
    assert (sizes == 0).tolist() == [False, True, False, False, True, False]
    # The gradient of a point is weight · (softmax − one-hot) / b.
    expected = weights[:, None] * (LOGITS.softmax(1) - functional.one_hot(LABELS, 4)) / 6
    torch.testing.assert_close(logits.grad, expected)
