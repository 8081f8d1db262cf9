"""Linear layers by oneDNN: the values of torch's own layer, and where they stay torch's own."""

import pytest
import torch
from torch import Tensor, nn

from fedul_flwr.models import mlp as linear
from fedul_flwr.models.mlp import Linear

INPUTS, OUTPUTS = 300, 200


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the left factors that oneDNN multiplied, as on a processor where it is faster."""
    if not (torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: True)
    shapes: list[tuple[int, ...]] = []
    real = linear._multiply

    def multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(tuple(left.shape))
        return real(left, right, bias)

    monkeypatch.setattr(linear, "_multiply", multiply)
    return shapes


def pair(bias: bool = True) -> tuple[Linear, nn.Linear]:
    """The layer, and torch's own with the same weights."""
    torch.manual_seed(0)
    ours, theirs = Linear(INPUTS, OUTPUTS, bias=bias), nn.Linear(INPUTS, OUTPUTS, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(layer: nn.Module, points: Tensor) -> list[Tensor]:
    """Outputs, and gradients of the inputs and of each weight, of a loss that is not linear."""
    inputs = points.clone().requires_grad_()
    outputs = layer(inputs)
    outputs.square().mean().backward()
    found = [outputs.detach(), inputs.grad, *(weight.grad for weight in layer.parameters())]
    return [value for value in found if value is not None]


@pytest.mark.parametrize("points", [1, 2, 10, 128])
@pytest.mark.parametrize("bias", [True, False])
def test_given_any_batch_then_outputs_and_gradients_are_torchs_up_to_rounding(
    used: list[tuple[int, ...]], points: int, bias: bool
) -> None:
    ours, theirs = pair(bias)
    batch = torch.randn(points, INPUTS)
    found, expected = gradients(ours, batch), gradients(theirs, batch)
    assert len(found) == len(expected) == 3 + bias
    for value, other in zip(found, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-6)
    assert used == [(points, INPUTS), (points, OUTPUTS), (OUTPUTS, points)]
