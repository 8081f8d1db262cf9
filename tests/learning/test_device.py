"""Device, arithmetic and threads of a process."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedul_flwr.learning import device
from fedul_flwr.learning.device import (
    choose_device,
    choose_dtype,
    fast_bfloat16,
    has_strides,
    idle_taps,
    products_in_bfloat16,
    release_freed_memory,
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
    monkeypatch.setattr(torch.cuda, "manual_seed", seeded.append)
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


class Libc:
    """As much of glibc as the release of memory needs; ``freed`` bytes lie in its lists."""

    def __init__(self, freed: int | None) -> None:
        self.trims = 0
        if freed is not None:  # older than 2.33
            self.mallinfo2 = lambda: SimpleNamespace(fordblks=freed)
            self.mallinfo2.restype = None  # type: ignore[attr-defined]

    def malloc_trim(self, pad: int) -> None:
        assert pad == 0
        self.trims += 1


@pytest.mark.parametrize(
    ("freed", "trims"), [(0, 0), (64 * 2**20, 0), (64 * 2**20 + 1, 1), (None, 1)]
)
def test_only_much_freed_memory_is_released(
    monkeypatch: pytest.MonkeyPatch, freed: int | None, trims: int
) -> None:
    libc = Libc(freed)
    monkeypatch.setattr(device, "_glibc", lambda: libc)
    release_freed_memory()
    assert libc.trims == trims


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


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("dilation", [1, 2])
def test_without_strides_all_is_bfloat16_and_right(groups: int, dilation: int) -> None:
    """Kernels for strides of one write every gradient, so models without others need no look."""
    random = torch.Generator().manual_seed(4)
    inputs = torch.randn(8, 16, 1, 1, generator=random)
    weight = torch.randn(16, 16 // groups, 3, 3, generator=random)
    plain = nn.Conv2d(16, 16, 3, dilation=dilation)
    options = {"padding": dilation, "dilation": dilation, "groups": groups}
    found, dtype = gradient(weight, inputs, plain, **options)
    assert dtype == torch.bfloat16
    idle = torch.ones(3, 3, dtype=torch.bool)
    idle[1, 1] = False
    assert bool((found[..., idle] == 0).all())
    assert bool((found[..., 1, 1] != 0).all())


@pytest.mark.parametrize(
    ("size", "options", "idle"),
    [
        ((2, 2), {"padding": 1, "stride": 2}, True),  # one place, taps over -1, 0, 1
        ((5, 5), {"stride": 7}, False),  # without padding: one place, taps over 0, 1, 2
        ((5, 5), {"stride": (7,)}, False),
        ((2, 2), {"padding": 1}, False),  # places over -1, 0, 1 and 0, 1, 2
        ((2, 2), {"padding": 2, "dilation": 2}, True),  # over -2, 0, 2 and -1, 1, 3
        ((6, 1), {"padding": 1}, True),  # columns alone: over -1, 0, 1, of which 0 is a pixel
        ((1, 6), {"padding": 1}, True),  # rows alone
        ((6, 2), {"padding": (0, 1)}, False),  # no padding of rows, which need none
        ((2, 6), {"padding": (1, 0)}, False),
    ],
)
def test_a_layer_is_float32_where_a_tap_is_idle_and_only_there(
    size: tuple[int, int], options: dict[str, Any], idle: bool
) -> None:
    wanted = torch.float32 if idle else torch.bfloat16
    inputs, weight = torch.ones(1, 1, *size), torch.ones(1, 1, 3, 3)
    with products_in_bfloat16(CPU, strided=True):
        assert F.conv2d(inputs, weight, **options).dtype == wanted
        assert nn.Conv2d(1, 1, 3, **options)(inputs).dtype == wanted  # passes all by position
        within = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 3, **options))
        assert within(inputs).dtype == wanted  # its input is bfloat16
