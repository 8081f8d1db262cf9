"""Device, arithmetic and threads of a process."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedul_flwr.learning.device import (
    choose_device,
    choose_dtype,
    fast_bfloat16,
    has_strides,
    idle_taps,
    products_in_bfloat16,
    seed_draws,
    set_threads,
)
from tests.support.refusals import refuses

CPU = torch.device("cpu")


@pytest.mark.parametrize("present", [True, False])
def test_devices(monkeypatch: pytest.MonkeyPatch, present: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert choose_device("cpu") == CPU
    assert choose_device("auto") == torch.device("cuda" if present else "cpu")
    if present:
        assert choose_device("cuda") == torch.device("cuda")
    else:
        with refuses("machine-too-small", setting="device"):
            choose_device("cuda")


@pytest.mark.parametrize(
    ("capabilities", "fast"),
    [
        ({"amx_bf16": True, "amx_tile": True}, True),
        ({"amx_tile": True}, True),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({}, False),
    ],
)
def test_bfloat16_is_chosen_where_the_machine_has_products_of_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], fast: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert fast_bfloat16(CPU) is fast
    large = nn.Linear(300, 500, bias=False)  # 300 · 500 = LARGE_MODEL weights
    assert choose_dtype("auto", large, CPU) == (torch.bfloat16 if fast else torch.float32)
    smaller = nn.Linear(299, 500, bias=False)
    assert choose_dtype("auto", smaller, CPU) == torch.float32


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_given_a_seed_then_draws_are_those_of_torchs_seed_and_only_a_gpu_in_use_is_seeded(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        expected = torch.rand(4)
        seed_draws(torch.device(kind), 7)
        assert torch.equal(torch.rand(4), expected)
    assert seeded == ([7] if kind == "cuda" else [])


def test_threads(threads: int) -> None:
    set_threads(2)
    assert torch.get_num_threads() == 2
    set_threads(0)
    assert torch.get_num_threads() == 2
    set_threads(1)
    assert torch.get_num_threads() == 1


STRIDED = nn.Conv2d(1, 1, 3, stride=2)
"""A model for which convolutions are looked at."""


def gradient(
    weight: Tensor, inputs: Tensor, model: nn.Module = STRIDED, **options: Any
) -> tuple[Tensor, torch.dtype]:
    """Of the weight for a sum of squares, in bfloat16, and the dtype of the convolution.

    Freed memory is full of NaN, so that what is not written is seen.
    """
    weight = weight.clone(memory_format=torch.preserve_format).requires_grad_()
    with products_in_bfloat16(CPU, strided=has_strides(model)):
        outputs = F.conv2d(inputs, weight, **options)
    total = outputs.float().square().sum()
    blocks = [torch.full((2**16,), 255, dtype=torch.uint8) for _ in range(64)]
    top = torch.zeros(2**13)  # above the blocks: else they would go back to the system
    del blocks
    total.backward()
    assert weight.grad is not None
    assert len(top)
    return weight.grad, outputs.dtype


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 3), (1, 3), (6, 8)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [2, (2, 2), (2, 3)])
def test_gradients_are_those_of_float32(
    groups: int, size: tuple[int, int], stride: int, padding: int | tuple[int, int]
) -> None:
    random = torch.Generator().manual_seed(4)
    inputs = torch.randn(8, 16, *size, generator=random)
    weight = torch.randn(16, 16 // groups, 5, 5, generator=random) / 5
    inputs = inputs.to(memory_format=torch.channels_last)
    options = {"stride": stride, "padding": padding, "groups": groups}
    found, dtype = gradient(weight, inputs, **options)
    exact = weight.clone().requires_grad_()
    F.conv2d(inputs, exact, **options).square().sum().backward()
    assert exact.grad is not None
    torch.testing.assert_close(found, exact.grad, rtol=0.05, atol=0.02 * float(exact.grad.norm()))
    paddings = (padding, padding) if isinstance(padding, int) else padding
    rows = idle_taps(size[0], 5, stride, paddings[0], 1)
    columns = idle_taps(size[1], 5, stride, paddings[1], 1)
    assert dtype == (torch.float32 if rows or columns else torch.bfloat16)
    assert bool((found[:, :, list(rows)] == 0).all() and (found[..., list(columns)] == 0).all())
