"""Probabilities of exact class counts: against all label vectors, and far out."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from fedul_flwr.learning.poisson_binomial import CountLoss, count_loss


def by_all_labels(p: Tensor, counts: list[int]) -> float:
    """−Σ_k log P(N_k = n_k) by adding up all vectors of labels."""
    n, num_classes = p.shape
    chances = [0.0] * num_classes
    for labels in product(range(num_classes), repeat=n):
        chance = math.prod(float(p[i, label]) for i, label in enumerate(labels))
        for k in range(num_classes):
            chances[k] += chance * (labels.count(k) == counts[k])
    return -sum(math.log(chance) for chance in chances)


@pytest.mark.parametrize(
    "counts", [[1, 0, 0], [0, 1, 1], [2, 1, 1], [0, 0, 5], [3, 1, 2], [0, 6, 0]]
)
def test_it_is_the_sum_over_all_label_vectors(counts: list[int]) -> None:
    torch.manual_seed(sum(counts))
    logits = 2 * torch.randn(sum(counts), 3, dtype=torch.float64)
    expected = by_all_labels(logits.softmax(dim=1), counts)
    assert float(count_loss(logits, torch.tensor(counts))) == pytest.approx(expected, rel=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor([3, 0, 2, 2])
    (gradient,) = torch.autograd.grad(count_loss(logits, counts), logits)
    for i, k in product(range(7), range(4)):
        step = torch.zeros_like(logits)
        step[i, k] = 1e-6
        with torch.no_grad():
            rise = count_loss(logits + step, counts) - count_loss(logits - step, counts)
        assert float(gradient[i, k]) == pytest.approx(float(rise) / 2e-6, abs=1e-7)


def test_it_is_exact_where_probabilities_underflow() -> None:
    # Every point is of class 1 with exp(-400), and all three must be: 3·400, twice.
    logits = torch.tensor([[400.0, 0.0]] * 3, requires_grad=True)
    loss = count_loss(logits, torch.tensor([0, 3]))
    assert float(loss.detach()) == pytest.approx(2400)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad, [[2.0, -2.0]] * 3, rtol=1e-6)


def test_a_set_of_one_class_is_twice_supervised_with_two_classes() -> None:
    # P(N_0 = n) is the product of p_i0, and P(N_1 = 0) the same.
    torch.manual_seed(1)
    logits = torch.randn(5, 2, dtype=torch.float64)
    plain = torch.nn.functional.cross_entropy(logits, torch.zeros(5).long(), reduction="sum")
    assert float(count_loss(logits, torch.tensor([5, 0]))) == pytest.approx(2 * float(plain))


def test_a_batch_takes_the_counts_of_its_set() -> None:
    counts, logits = torch.tensor([[3, 0], [1, 2]]), torch.randn(3, 2)
    loss = CountLoss(counts)
    for m in (0, 1):
        expected = count_loss(logits, counts[m])
        torch.testing.assert_close(loss(logits, torch.full((3,), m)), expected)
