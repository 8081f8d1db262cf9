"""Optimizers and augmentations of the user's own, named by reference."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.config.trusted_modules import named_modules
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import augment_by_reference, point_batches
from fedul_flwr.learning.local import train_local
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Task, on_logits
from tests.support.refusals import refuses

MODULE = """
import torch

class Halver:
    def __init__(self, weights, learning_rate):
        self.weights, self.rate = weights, learning_rate

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None

    def step(self):
        with torch.no_grad():
            for weight in self.weights:
                weight.mul_(0.5)

def rms(weights, learning_rate):
    return torch.optim.SGD(weights, lr=learning_rate)

def no_optimizer(weights, learning_rate):
    return 3

def negate(inputs, rng):
    return -inputs

def shrink(inputs, rng):
    return inputs[:1]

def broken(inputs, rng):
    torch.zeros(2) @ torch.zeros(3)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_functions.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path / "own_functions.py"
    sys.modules.pop("own_functions", None)


def trained(**options: object) -> list[float]:
    """The weights (1, 2) after a step on the point (1, 1): the loss is their sum."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
    plan = LocalPlan(batch_size=0, learning_rate=0.25, **options)  # type: ignore[arg-type]
    rows = np.array([0])
    batches = point_batches(np.ones((1, 2), dtype=np.float32), rows, rows, plan)
    objective = on_logits(lambda logits, _: logits.sum())
    train_local(model, Task(batches, objective), plan, np.random.default_rng(0))
    return model.weight.flatten().tolist()


def test_given_an_own_optimizer_then_it_makes_the_steps() -> None:
    assert trained(optimizer="own_functions:Halver") == [0.5, 1.0]
    # The gradient is the point (1, 1): 1 - 0.25 and 2 - 0.25; torch's optimizers go as they are.
    assert trained(optimizer="own_functions:rms") == [0.75, 1.75]


def test_given_an_own_augmentation_then_batches_pass_through_it() -> None:
    # Of the point (-1, -1): 1 + 0.25 and 2 + 0.25.
    assert trained(optimizer="sgd", augment="own_functions:negate") == [1.25, 2.25]


def test_given_an_error_within_torch_then_the_line_is_the_users(module: Path) -> None:
    line = MODULE.splitlines().index("    torch.zeros(2) @ torch.zeros(3)") + 1
    with pytest.raises(UserError) as error:
        augment_by_reference(torch.zeros(3, 2), "own_functions:broken", np.random.default_rng(0))
    assert f"(line {line} of {module})" in str(error.value)


@pytest.mark.parametrize("key", ["optimizer", "augment"])
def test_given_a_name_or_a_reference_then_it_is_told_apart(key: str) -> None:
    flat = default_flat()
    assert parse_flat({**flat, key: "mine:build"}).to_flat()[key] == "mine:build"
    assert named_modules({key: "mine:build"}) == ["mine:build"]
    with refuses("setting-not-allowed"):
        parse_flat({**flat, key: "sdg"})
