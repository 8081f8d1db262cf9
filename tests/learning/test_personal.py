"""Personal heads and batch-norm statistics: by hand, degenerate cases, and what stays as it is."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.data.types import OwnPoints
from fedul_flwr.learning import personal
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.learning.personal import descend, own_head, own_loss, own_statistics
from fedul_flwr.learning.plan import LocalPlan
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
PLAN = LocalPlan()


def two_classes(count: int = 40, shift: float = 2.0) -> OwnPoints:
    labels = np.arange(count) % 2
    inputs = (RNG.normal(size=(count, 3)) + shift * labels[:, None]).astype(np.float32)
    rows = np.arange(count)
    return OwnPoints(inputs, rows, rows, labels)


def a_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()


def test_a_second_step_by_hand() -> None:
    # With feature 1 and logits (w, -w): after step 1 w = 1. The second begins at
    # 1 + 1/4 (1 - 0) = 5/4, and goes 2 times 1 - sigmoid(5/2) further.
    one, start = torch.ones(1, 1, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)
    *_, last = descend(one, torch.tensor([0]), start, functional.cross_entropy, 2)
    expected = 1.25 + 2 * (1 - 1 / (1 + np.exp(-2.5)))
    np.testing.assert_allclose(last.flatten(), [expected, -expected])


def test_the_loss_falls_with_small_and_with_huge_features() -> None:
    for scale in (1e-3, 1.0, 1e4):
        own = two_classes()
        features = scale * torch.from_numpy(own.inputs).double()
        targets, start = torch.from_numpy(own.targets), torch.zeros(2, 3, dtype=torch.float64)
        path = [*descend(features, targets, start, functional.cross_entropy, 50)]
        losses = [float(functional.cross_entropy(features @ w.T, targets)) for w in path]
        assert losses[-1] < 0.9 * losses[0]


def test_the_head_alone_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, own = a_model(), two_classes()
    before = {name: array.copy() for name, array in dump_arrays(model).items()}
    found = own_head(model, own, PLAN, np.random.default_rng(0))
    assert found.arrays.keys() == {"3.weight", "3.bias"}
    for name, array in dump_arrays(model).items():  # the global model is as it was
        np.testing.assert_array_equal(array, before[name])
    for name, array in found.arrays.items():
        assert array.shape == before[name].shape
        assert array.dtype == before[name].dtype
        assert not np.array_equal(array, before[name])
    monkeypatch.setattr(personal, "MOST_STEPS", 0)
    none = own_head(model, own, PLAN, np.random.default_rng(0))
    assert (none.arrays, none.steps) == ({}, 0)
    assert none.loss == none.global_loss


def test_of_sets_the_loss_is_feduls_for_the_clients_own_class_shares() -> None:
    # Sets of 30 and 10 points, class shares (3/4, 1/4) and (0, 1): 22.5 and 17.5 points of the
    # classes. Logits 0 under these shares: p(x | k) alike, so a set has the share of its points.
    priors = np.array([[0.75, 0.25], [0.0, 1.0]])
    masses = np.array([22.5, 17.5]) / 40
    own = OwnPoints(np.zeros((1, 1)), np.array([0]), priors=priors, set_sizes=np.array([30, 10]))
    logits = torch.from_numpy(np.log(masses))[None]
    value = own_loss(own)(logits, torch.tensor([0]))
    np.testing.assert_allclose(float(value), -np.log(0.75), rtol=1e-6)


def test_a_point_in_two_sets_is_left_out_of_both() -> None:
    points = np.array([0, 1, 2, 3, 4, 5, 0, 1])
    folds = personal._folds(points, np.random.default_rng(0))
    assert folds[0] == folds[6]
    assert folds[1] == folds[7]
    assert set(folds) == {0, 1, 2, 3, 4}


def test_a_model_whose_last_layer_is_not_its_output_is_refused() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 10 * torch.as_tensor(self.layer(inputs))

    with refuses("model-unfit", match="logits"):
        own_head(Scaled(), two_classes(), PLAN, np.random.default_rng(0))


def test_statistics_by_hand() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2)).eval()
    inputs = np.array([[1.0, 10.0], [3.0, 10.0], [5.0, 16.0]], dtype=np.float32)
    found = own_statistics(model, OwnPoints(inputs, np.arange(3)), PLAN)
    assert found.arrays.keys() == {"0.running_mean", "0.running_var"}
    np.testing.assert_allclose(found.arrays["0.running_mean"], [3, 12])
    np.testing.assert_allclose(found.arrays["0.running_var"], [4, 12])  # divided by n - 1
    assert found.loss is None


def test_statistics_that_do_not_lower_the_loss_are_not_kept() -> None:
    own = two_classes(40, shift=20.0)
    norm, layer = nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2, bias=False)
    model = nn.Sequential(norm, layer).eval()
    with torch.no_grad():
        layer.weight[:] = torch.tensor([[-1.0] * 3, [1.0] * 3])
        norm.running_mean[:] = 10.0  # type: ignore[index]
    kept = own_statistics(model, own, PLAN)  # variances of 1 make it surer than its own of 100
    assert (kept.arrays, kept.loss) == ({}, kept.global_loss)
    with torch.no_grad():
        norm.running_mean[:] = 100.0  # type: ignore[index]
        norm.running_var[:] = 1.0  # type: ignore[index]
    moved = own_statistics(model, own, PLAN)
    assert moved.arrays
    assert moved.loss is not None
    assert moved.global_loss is not None
    assert moved.loss < moved.global_loss


def test_labels_at_random_stop_earlier_than_labels_that_follow_the_features() -> None:
    learnable, model = two_classes(60), a_model()
    noise = OwnPoints(learnable.inputs, learnable.points, learnable.tuned, RNG.permutation(60) % 2)
    found = own_head(model, learnable, PLAN, np.random.default_rng(0))
    random = own_head(model, noise, PLAN, np.random.default_rng(0))
    assert found.loss is not None
    assert found.global_loss is not None
    assert found.steps > random.steps
    assert found.loss < 0.9 * found.global_loss
