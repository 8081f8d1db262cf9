"""A student that agrees with the moving average of itself (Tarvainen & Valpola 2017)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.network import Network


class MeanTeacherObjective:
    """Cross-entropy of labeled points, and agreement of two views of all points.

    The student sees the first view, the teacher the second. The teacher is the student's moving
    average with decay min(1 - 1/(t + 1), ``decay``) after t steps, so the plain mean of the
    student's weights at first; it begins as the student's copy. What they differ by is the mean
    over points and classes of the squared difference of their softmax outputs.

    With a second head (:class:`~fedul_flwr.models.two_heads.TwoHeads`) the first head learns the
    labels and the second one to agree with the teacher's first, and both are pulled together.

    Parameters
    ----------
    classes : ``(n,)``, class of every training point, -1 for an unlabeled one.
    weight : of the disagreement.
    decay : largest decay of the teacher, in [0, 1).
    logit_cost : weight of the mean squared difference between the logits of both heads.
    """

    def __init__(self, classes: Tensor, weight: float, decay: float, logit_cost: float) -> None:
        self._classes = classes
        self._weight = weight
        self._decay = decay
        self._logit_cost = logit_cost
        self._steps = 0
        self._teacher: nn.Module | None = None

    def __call__(self, network: Network, inputs: Tensor, positions: Tensor) -> Tensor:
        """Mean loss of a batch.

        Parameters
        ----------
        inputs : ``(2 b, c, h, w)``, both views of the batch.
        positions : ``(b,)``, which training points these are.
        """
        teacher = network.twin(self._follow(network.model))
        seen, other = inputs.chunk(2)
        logits, agreeing = network.both(seen)
        with torch.no_grad():
            target = functional.softmax(teacher(other), dim=1)
        classes = self._classes[positions.cpu()].to(logits.device)
        known = classes >= 0
        # Divided by the labeled points of the batch; a sum of none is 0.
        loss = functional.cross_entropy(logits[known], classes[known], reduction="sum")
        loss = loss / known.sum().clamp(min=1)
        apart = functional.mse_loss(functional.softmax(agreeing, dim=1), target)
        loss = loss + self._weight * apart
        if agreeing is not logits:
            loss = loss + self._logit_cost * functional.mse_loss(logits, agreeing)
        return loss

    @torch.no_grad()
    def _follow(self, student: nn.Module) -> nn.Module:
        """The teacher after the student's last step."""
        if self._teacher is None:
            self._teacher = copy.deepcopy(student)
            return self._teacher
        self._steps += 1
        decay = min(1 - 1 / (self._steps + 1), self._decay)
        for own, now in zip(self._teacher.parameters(), student.parameters(), strict=True):
            own.lerp_(now, 1 - decay)
        return self._teacher
