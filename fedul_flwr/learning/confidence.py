"""Confident points: which predictions a method trains on, from which probability on, how many."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.data.types import Inputs
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.plan import LocalPlan

CONFIDENT_SHARE = "confident-share"
"""Metric of a round: the share of the points whose pseudo labels could be used, that were."""
_ROUNDING = 1e-6
"""A batch may round a probability differently than the pass over all points."""


class ConfidentShare:
    """Counts points, and the confident ones among them, without waiting for the device."""

    def __init__(self) -> None:
        self._points = 0
        self._confident: Tensor | int = 0

    def add(self, confident: Tensor) -> None:
        """Count a batch: bool ``(n,)``, whether a point is confident."""
        self._points += len(confident)
        self._confident = self._confident + confident.detach().sum()

    @property
    def share(self) -> float:
        """Confident points of all, in [0, 1]; 0 without points."""
        return float(self._confident) / max(self._points, 1)

    def metrics(self) -> dict[str, float]:
        """The share as a metric of the round."""
        return {CONFIDENT_SHARE: self.share}


def top_probabilities(
    model: nn.Module, inputs: Inputs, points: NDArray[Any], plan: LocalPlan
) -> Tensor:
    """``(n,)``: the probability of the class that ``model`` predicts, for rows ``points``."""
    if not len(points):  # a stream that has run dry
        return torch.empty(0)
    return predict_logits(model, inputs, points, plan).softmax(dim=1).amax(dim=1)


def threshold_for(threshold: float, top: Tensor) -> float:
    """The smallest top probability of a confident point.

    Parameters
    ----------
    threshold : a probability, or :data:`~fedul_flwr.config.base.ADAPTIVE`: the mean of ``top``
        (as the global threshold of FreeMatch, Wang et al. 2023, eq. 5, here of one client's
        points and the model that it received). Some point always reaches it.
    top : ``(n,)``, the client's top probabilities at the start of the round.
    """
    if threshold != ADAPTIVE:
        return threshold
    return float(top.double().mean()) - _ROUNDING if len(top) else 0.0
