"""Shares of confident points, and thresholds that follow from a client's predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.learning.matching import ConfidentShare, threshold_for, top_probabilities
from fedul_flwr.learning.plan import LocalPlan


def test_the_share_is_over_all_points_not_over_batches() -> None:
    share = ConfidentShare()
    assert share.share == 0
    share.add(torch.tensor([True, False, False]))
    share.add(torch.tensor([True]))
    assert share.share == 0.5
    assert share.metrics() == {"confident-share": 0.5}


@pytest.mark.parametrize("top", [[0.2, 0.4, 0.9], [0.3, 0.3, 0.3], [0.11]])
def test_given_adaptive_then_the_mean_is_the_threshold_and_some_point_reaches_it(
    top: list[float],
) -> None:
    found = threshold_for("adaptive", torch.tensor(top))  # type: ignore[arg-type]
    assert found == pytest.approx(np.mean(top), abs=1e-5)
    assert (torch.tensor(top) >= found).any()
    assert threshold_for("adaptive", torch.empty(0)) == 0.0  # type: ignore[arg-type]


def test_top_probabilities_by_hand() -> None:
    # Logits (log 3, 0) and (0, 0): probabilities 3/4 and 1/2.
    inputs = np.array([[np.log(3), 0], [5, 5], [0, 0]], dtype=np.float32)
    found = top_probabilities(nn.Identity(), inputs, np.array([0, 2]), LocalPlan())
    assert found.tolist() == pytest.approx([0.75, 0.5])
