"""The model in the arithmetic of the round: its heads, its twins, and what batch norm sees."""

import pytest
import torch
from torch import nn

from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from fedul_flwr.models import build_model

IMAGES = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
KINDS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}


def model_of(name: str, precision: str) -> nn.Module:
    model = build_model(name, (8, 8, 1), 10, 0)
    return model.double() if precision == "float64" else model


@pytest.mark.parametrize(("precision", "kind"), KINDS.items())
def test_the_first_of_both_heads_is_the_models_own(precision: str, kind: torch.dtype) -> None:
    network = Network(model_of("mlp+head", precision), CPU, precision)
    inputs = network.to_device(IMAGES)
    first, second = network.both(inputs)
    assert torch.equal(first, network(inputs))
    assert not torch.equal(first, second)
    assert (first.dtype, second.dtype) == (kind, kind)
    inside: list[torch.dtype] = []
    network.model.second.register_forward_hook(lambda _, given, out: inside.append(out.dtype))
    network.both(inputs)
    assert inside == [torch.bfloat16 if precision == "bfloat16" else kind]


@pytest.mark.parametrize(
    ("precision", "wide"), [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_the_wide_network_does_without_bfloat16(precision: str, wide: str) -> None:
    model = model_of("mlp", precision)
    network, expected = Network(model, CPU, precision), Network(model, CPU, wide)
    found = network.wide()
    assert found.model is model
    inputs = found.to_device(IMAGES)
    assert inputs.dtype == KINDS[wide]
    assert torch.equal(found(inputs), expected(inputs))
    assert torch.equal(found(inputs), network(inputs)) == (precision != "bfloat16")
