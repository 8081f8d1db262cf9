"""Steps on small inputs give the numbers that the code of the methods' authors gave, in float64.

Each test names the repository and its functions; `docs/measurements.md` has the commits.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.arrays import Arrays
from fedul_flwr.baselines.semifl import of_method
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.fix_mix import FixMixLoss, select
from fedul_flwr.learning.local import train_local
from fedul_flwr.learning.matching import SageObjective
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.learning.proportions import assign_set, count_loss, proportion_loss
from fedul_flwr.learning.task import Batch, Batches, BatchLoss, Task

WIDE: Any = {"dtype": torch.float64}
PLAN = LocalPlan(optimizer="sgd", learning_rate=0.03, momentum=0.9, precision="float64")
X = torch.tensor([[0.5, -1.0], [2.0, 1.0], [-1.0, 1.5], [1.0, 0.2], [-0.5, 0.5]], **WIDE)


def linear() -> nn.Linear:
    model = nn.Linear(2, 3).double()
    model.weight.data = torch.tensor([[1.0, -1.0], [0.0, 1.0], [-1.0, 0.5]], **WIDE)
    model.bias.data = torch.tensor([0.1, 0.0, -0.2], **WIDE)
    return model


def trained(
    model: nn.Linear, loss: BatchLoss, batch: Batch, plan: LocalPlan, kept: Arrays | None = None
) -> list[float]:
    """Weights, then biases, after a step on the batch for each of the plan's epochs."""
    rng = np.random.default_rng(0)
    task = Task(Batches(1, lambda rng: iter([batch])), loss)
    train_local(model, task, plan, rng, velocity=kept)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()]).tolist()


def gradient(model: nn.Linear, value: Tensor) -> list[float]:
    value.backward()  # type: ignore[no-untyped-call]
    return torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]).tolist()


def near(*numbers: float) -> Any:
    return pytest.approx(numbers, abs=1e-7)


def strong(inputs: Tensor) -> Tensor:
    return 1.5 * inputs.flip(1)


def weak(inputs: Tensor) -> Tensor:
    return inputs + 0.25


def test_semifl_two_rounds_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """SemiFL's repository, ``Client.train``: two steps each, all four gradients above norm 1."""
    monkeypatch.setattr("fedul_flwr.learning.fix_mix.mixing_ratio", lambda *_: 0.3)
    batch = Batch(X[[0, 1, 2, 2]], torch.tensor([0, 1, 2, 2]))
    plan, loss = replace(PLAN, weight_decay=5e-4, local_epochs=2), FixMixLoss(3, strong, weak)
    model, plan, kept = linear(), of_method(plan), Arrays()
    assert trained(model, loss, batch, plan, kept) == near(
        *(0.92813706, -0.95998681, 0.02728336, 0.9413687, -0.95542042, 0.51858353),
        *(0.1533776, -0.05494611, -0.19842458),
    )
    assert trained(model, loss, batch, plan, kept) == near(
        *(0.80657968, -0.89438518, 0.0732269, 0.85132948, -0.87980658, 0.54296463),
        *(0.24223626, -0.14182062, -0.20039742),
    )


def test_fl2_thresholds_of_classes() -> None:
    """(FL)²'s repository, ``FLFL.make_pseudo_lb_dataset``: class 1's threshold is 0.736668, which
    the last points miss and pass by 1e-5, and class 0's 0.602062."""
    above, below = ([(1 - top) / 2, top, (1 - top) / 2] for top in (0.73668, 0.73666))
    points = [[0.96, 0.03, 0.01], [0.2, 0.75, 0.05], [0.5, 0.1, 0.4], above, below]
    found = select(torch.tensor(points, **WIDE), ADAPTIVE)
    assert found.mean_top == pytest.approx(0.736668)
    assert found.chosen.tolist() == [True, True, False, True, False]


def test_fl2_gradient_of_a_step() -> None:
    """(FL)²'s repository, ``FLFL.forward_ulb`` with ``ASAM``: the first and the last are sure."""
    model, loss = linear(), FixMixLoss(3, lambda x: x, weak, mix_weight=0.0, sharpness=0.1)
    targets = torch.tensor([0 + 3, 1, 1 + 3] * 2)
    value = loss(Network(model, CPU, "float64"), Batch(torch.cat([X[:3], X[:3]]), targets))
    assert gradient(model, value) == near(
        *(0.31522275, 0.21579218, -0.15630655, -0.49082902, -0.1589162, 0.27503684),
        *(0.13166343, -0.34903199, 0.21736856),
    )


def test_sage_three_steps_of_a_client() -> None:
    """SAGE's repository, ``Local.fixmatch_train``: in the second step and the third both models
    say different classes of one point, and λ is 0.817051 and 0.586301."""
    model = linear()
    received, weights = linear(), {"supervised_weight": 1.0, "unsupervised_weight": 1.0}
    objective = SageObjective(received=received, threshold=0.39, strong_view=strong, **weights)
    points = torch.cat([X[:2], torch.tensor([[0.6, 0.31], [-1.0, 1.5]], **WIDE)])
    batch = Batch(points, torch.tensor([1, 2, -1, -1]), 2)
    plan = replace(PLAN, learning_rate=0.1, weight_decay=1e-4, local_epochs=3)
    assert trained(model, objective, batch, plan) == near(
        *(0.09554826, -0.30547442, -0.0324134, 0.38198838, -0.06313486, 0.42345799),
        *(-0.33755776, 0.06304053, 0.17452284),
    )


def test_llp_dc_gradient_of_a_step() -> None:
    """LLP-DC's repository, ``train_one_epoch``: class shares of 1.5, 1.8 and 1.7 points."""
    model, shares = linear(), np.array([0.3, 0.36, 0.34])
    log_p, log_q = (functional.log_softmax(model(points), 1) for points in (X, 1.5 * X))
    labels = assign_set(log_p.detach().numpy(), shares)
    assert labels.tolist() == [0, 1, 2, 1, 2]
    consistency, _ = fixmatch_loss(log_p.detach(), log_q, 0.6, torch.from_numpy(labels))
    loss = proportion_loss(log_p, torch.from_numpy(shares)) + 0.5 * consistency
    assert float(loss.detach()) == pytest.approx(1.14453834, abs=2e-7)  # theirs has 1e-7 added
    assert gradient(model, loss) == near(
        *(0.0515583, 0.02301969, -0.0679488, 0.026716, 0.0163905, -0.04973569),
        *(0.05702775, 0.013851, -0.07087874),
    )


def test_llp_pvc_loss_and_gradient() -> None:
    """LLP-PVC's repository, ``compute_CC_loss_fft_precise`` and ``compute_CC_loss_dp_precise``."""
    rows = [[0.5, -1.0, 0.0], [2.0, 1.0, -0.5], [-1.0, 1.5, 0.3], [0.1, 0.2, 0.7]]
    logits = torch.tensor(rows, **WIDE, requires_grad=True)
    loss = count_loss(logits, torch.tensor([1, 2, 1]))
    assert float(loss.detach()) == pytest.approx(2.89014164)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == near(
        *(0.2388764, -0.13286676, -0.10600965, 0.25336465, -0.2677117, 0.01434705),
        *(0.07806306, -0.26624606, 0.188183, 0.25826468, -0.23989209, -0.01837259),
    )
