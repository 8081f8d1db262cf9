"""SCAFFOLD's variates: which a client goes on from, and its training by hand."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.scaffold import train_with_variates
from fedul_flwr.learning.task import Batch, Batches, Task, on_logits
from fedul_flwr.learning.variates import Variate, confirmed, proposal, variate_rounds
from tests.support.refusals import refuses


def variate(value: float) -> dict[str, np.ndarray]:
    return {"layer/weight": np.full(2, value), "round": np.array([value])}


def test_a_proposal_that_was_never_used_is_dropped() -> None:
    first = proposal({}, 0, variate(3.0), 2)
    assert confirmed(first, 0) == {}
    second = proposal(confirmed(first, 2), 2, variate(4.0), 5)
    assert variate_rounds(second) == [5, 2]
    # Rounds 5 and 7 are lost: what round 2 left is still there.
    third = proposal(confirmed(second, 2), 2, variate(5.0), 7)
    assert variate_rounds(third) == [7, 2]
    assert (confirmed(third, 2)["layer/weight"] == 3.0).all()
    assert (confirmed(third, 7)["layer/weight"] == 5.0).all()


def test_a_variate_that_is_gone_is_an_error() -> None:
    with refuses("not-sent-yet", match="SCAFFOLD .*round 2 "):
        confirmed(proposal({}, 0, variate(3.0), 4), 2)


PLAN = LocalPlan(optimizer="sgd", learning_rate=0.1, precision="float64")


def batches(_: np.random.Generator) -> Iterator[Batch]:
    """Input 3 and target 0, once."""
    yield Batch(torch.tensor([[3.0]]), torch.tensor([[0.0]]))


@pytest.mark.parametrize("own", [{}, {"weight": np.array([[0.3]])}], ids=["first round", "later"])
@pytest.mark.parametrize("option", ["I", "II"])
def test_a_step_and_the_renewed_variate(option: str, own: Variate) -> None:
    """The loss is 3·y: its gradient is 3 everywhere. From x = 1 the step is 0.1·(3 − c_i + 1/3).

    Option I takes the gradient, 3. Option II c_i − 1/3 + (x − y)/0.1 = c_i − 1/3 + 3 − c_i + 1/3.
    """
    model = nn.Linear(1, 1)  # of float32
    with torch.no_grad():
        model.weight.fill_(1.0)
    model.bias.requires_grad_(False)
    result, renewed, change = train_with_variates(
        model,
        Task(
            Batches(1, batches),
            on_logits(lambda logits, targets: (logits - targets - model.bias).sum()),
        ),
        PLAN,
        np.random.default_rng(0),
        variates=({"weight": np.array([[1 / 3]])}, own),
        option=option,
    )
    c_i = 0.3 if own else 0.0
    assert result.steps == 1
    assert model.weight.item() == pytest.approx(1 - 0.1 * (3 - c_i + 1 / 3), rel=1e-14)
    assert renewed.keys() == change.keys() == {"weight"}
    assert renewed["weight"].dtype == np.float64
    assert renewed["weight"].item() == pytest.approx(3, rel=1e-13)
    assert change["weight"].item() == pytest.approx(3 - c_i, rel=1e-13)
