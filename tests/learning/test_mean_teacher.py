"""Mean teacher: the average, the losses and the double head by hand; degenerate weights."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedul_flwr.learning.consistency import MeanTeacherObjective
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.task import Batch
from fedul_flwr.models.parts import TwoHeads

CPU = torch.device("cpu")
NOBODY = torch.full((2,), -1)
BOTH = torch.tensor([0, 1])


class Line(nn.Module):
    """Logits (w x, 0) of one pixel x."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        logit = self.w * inputs.flatten(1)
        return torch.cat([logit, torch.zeros_like(logit)], dim=1)


def network(model: nn.Module) -> Network:
    return Network(model, CPU, "float64")


def pixels(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).reshape(-1, 1, 1, 1)


def apart(student: float, teacher: float, seen: list[float], other: list[float]) -> float:
    """Mean of (s_k - t_k)^2 over points and both classes, where s_1 = 1 - s_0."""

    def sigmoid(numbers: list[float], w: float) -> np.ndarray:
        return 1 / (1 + np.exp(-w * np.array(numbers)))

    return float(((sigmoid(seen, student) - sigmoid(other, teacher)) ** 2).mean())


@pytest.mark.parametrize(
    ("decay", "teachers"),
    [
        # min(1 - 1/(t + 1), decay) is 1/2, 2/3, 3/4: plain means of 1, 4; of 1, 4, -2; and so on.
        (0.97, [1, 5 / 2, 1, 3 / 2]),
        # From the second step on 0.6 is less: 0.6 · 5/2 - 0.4 · 2 = 0.7, 0.6 · 0.7 + 0.4 · 3.
        (0.6, [1, 5 / 2, 0.7, 1.62]),
        # No memory: the teacher is the student.
        (0.0, [1, 4, -2, 3]),
    ],
)
def test_the_teacher_is_a_mean_of_students(decay: float, teachers: list[float]) -> None:
    student = Line(1.0)
    objective = MeanTeacherObjective(NOBODY, Line(1.0), weight=1.0, decay=decay, logit_cost=0.0)
    seen, other = [0.3, -0.7], [0.5, 0.2]
    for w, teacher in zip((1.0, 4.0, -2.0, 3.0), teachers, strict=True):
        with torch.no_grad():
            student.w.fill_(w)
        loss = objective(network(student), Batch(pixels(*seen, *other), BOTH))
        assert float(loss.detach()) == pytest.approx(apart(w, teacher, seen, other), rel=1e-10)
    # A step whose student nobody has seen yet: the caller says when training is over.
    objective.follow(Line(10.0))
    t = len(teachers)
    share = min(1 - 1 / (t + 1), decay)
    assert float(objective.teacher.w.detach()) == pytest.approx(
        share * teachers[-1] + (1 - share) * 10
    )


def test_a_teacher_that_has_followed_before_goes_on_with_its_own_decay() -> None:
    # After 3 steps the next one is the 4th: 1 - 1/5 = 0.8 of the teacher, and 0.2 of the student.
    objective = MeanTeacherObjective(
        NOBODY, Line(2.0), weight=1.0, decay=0.97, logit_cost=0.0, steps=3
    )
    loss = objective(network(Line(7.0)), Batch(pixels(0.3, -0.7, 0.5, 0.2), BOTH))
    assert float(loss.detach()) == pytest.approx(
        apart(7.0, 2.0, [0.3, -0.7], [0.5, 0.2]), rel=1e-10
    )
    objective.follow(Line(7.0))
    assert float(objective.teacher.w.detach()) == pytest.approx(0.8 * 2 + 0.2 * 7)
    # After 40 steps 1 - 1/42 is above the largest decay.
    late = MeanTeacherObjective(NOBODY, Line(2.0), weight=1, decay=0.97, logit_cost=0, steps=40)
    late.follow(Line(7.0))
    assert float(late.teacher.w.detach()) == pytest.approx(0.97 * 2 + 0.03 * 7)


def test_labels_and_agreement_by_hand() -> None:
    # Point 0 has class 1, point 1 none: CE of (w x, 0) at class 1 is log(1 + exp(w x)).
    # It is divided by both points of the batch.
    def objective() -> MeanTeacherObjective:
        classes = torch.tensor([1, -1])
        return MeanTeacherObjective(classes, Line(2.0), weight=7.0, decay=0.9, logit_cost=0.0)

    loss = objective()(network(Line(2.0)), Batch(pixels(0.3, -0.7, 0.5, 0.2), BOTH))
    expected = np.log1p(np.exp(0.6)) / 2 + 7 * apart(2, 2, [0.3, -0.7], [0.5, 0.2])
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
    # Positions say which points these are: the other one has the label now.
    loss = objective()(network(Line(2.0)), Batch(pixels(0.3, -0.7, 0.5, 0.2), torch.tensor([1, 0])))
    expected = np.log1p(np.exp(-1.4)) / 2 + 7 * apart(2, 2, [0.3, -0.7], [0.5, 0.2])
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)


def two_heads() -> TwoHeads:
    """Heads with logits (x, 0) and (3 x, 1)."""
    body = nn.Linear(1, 2, bias=False)
    model = TwoHeads(nn.Sequential(nn.Flatten(), body), num_classes=2).double()
    with torch.no_grad():
        body.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.second.weight.copy_(torch.tensor([[3.0], [0.0]]))
        model.second.bias.copy_(torch.tensor([0.0, 1.0]))
    return model


@pytest.mark.parametrize("cost", [0.0, 0.01, 5.0])
def test_the_second_head_agrees_and_is_pulled_to_the_first(cost: float) -> None:
    objective = MeanTeacherObjective(
        torch.tensor([1, -1]), two_heads(), weight=7.0, decay=0.9, logit_cost=cost
    )
    loss = objective(network(two_heads()), Batch(pixels(0.3, -0.7, 0.5, 0.2), BOTH))
    seen, other = np.array([0.3, -0.7]), np.array([0.5, 0.2])
    # The second head's share of class 0 is sigmoid(3 x - 1), the teacher's first head's sigmoid(x).
    s, t = 1 / (1 + np.exp(1 - 3 * seen)), 1 / (1 + np.exp(-other))
    # Logits differ by 2 x and by 1.
    between = (((2 * seen) ** 2).sum() + 2) / 4
    expected = np.log1p(np.exp(0.3)) / 2 + 7 * ((s - t) ** 2).mean() + cost * between
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
