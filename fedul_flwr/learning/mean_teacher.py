"""Mean teacher: consistency of a student with its moving average (Tarvainen & Valpola 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.network import Network


class MeanTeacherObjective:
    """Cross-entropy of labeled points, and consistency between two views of all points.

    The student sees the first view, the teacher the second. The teacher is the student's moving
    average: after the student's step t its weights are d·teacher + (1 − d)·student with
    d = min(1 − 1/(t + 1), ``decay``), so a plain mean at first. Its batch-norm statistics come from
    its own inputs. The cross-entropy is summed over the labeled points and divided by all points
    of the batch; the consistency loss is the mean over points and classes of the squared difference
    of both softmax outputs. Both are as in the code of XCLP's authors.

    With a second head (:class:`~fedul_flwr.models.last_layer.TwoHeads`) the first one is trained on
    labels, the second one on the teacher's first head, and a penalty keeps both heads close.

    Parameters
    ----------
    classes : ``(n,)``, class of every training point, -1 for an unlabeled one.
    teacher : in training mode, on the student's device; changed in place.
    weight : weight of the consistency loss.
    decay : largest decay of the teacher, in [0, 1).
    logit_cost : weight of the mean squared difference between the logits of both heads.
    steps : number of steps t so far.
    """

    def __init__(
        self,
        classes: Tensor,
        teacher: nn.Module,
        *,
        weight: float,
        decay: float = 0.97,
        logit_cost: float = 0.01,
        steps: int = 0,
    ) -> None:
        self.teacher = teacher
        self._classes = classes
        self._weight = weight
        self._decay = decay
        self._logit_cost = logit_cost
        self._steps = steps
        self._begun = False

    def __call__(self, network: Network, inputs: Tensor, positions: Tensor) -> Tensor:
        """Mean loss of a batch.

        Parameters
        ----------
        inputs : ``(2 b, c, h, w)``, both views of the batch.
        positions : ``(b,)``, positions of these training points in ``classes``.
        """
        if self._begun:
            self.follow(network.model)
        self._begun = True
        seen, other = inputs.chunk(2)
        logits, agreeing = network.both(seen)
        with torch.no_grad():
            target = functional.softmax(network.twin(self.teacher)(other), dim=1)
        classes = self._classes[positions.cpu()].to(logits.device)
        loss = functional.cross_entropy(logits, classes, ignore_index=-1, reduction="sum")
        loss = loss / len(classes)
        apart = functional.mse_loss(functional.softmax(agreeing, dim=1), target)
        loss = loss + self._weight * apart
        if agreeing is not logits:
            loss = loss + self._logit_cost * functional.mse_loss(logits, agreeing)
        return loss

    @torch.no_grad()
    def follow(self, student: nn.Module) -> None:
        """Update the teacher after a step of the student; the caller does so after the last one."""
        self._steps += 1
        decay = min(1 - 1 / (self._steps + 1), self._decay)
        for own, now in zip(self.teacher.parameters(), student.parameters(), strict=True):
            own.lerp_(now, 1 - decay)
