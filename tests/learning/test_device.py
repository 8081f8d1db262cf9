"""Device, arithmetic and threads of a process."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fedul_flwr.learning import device
from fedul_flwr.learning.device import (
    autocast,
    choose_device,
    choose_dtype,
    fast_bfloat16,
    place,
    release_freed_memory,
    reuse_all_memory,
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
        ({"amx_bf16": True}, True),
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


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_products_run_in_the_precision(name: str) -> None:
    dtype = getattr(torch, name)
    layer = place(nn.Linear(4, 4), CPU, name)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert next(layer.parameters()).dtype == wide
    with autocast(CPU, dtype, strided=False):
        assert layer(torch.zeros(1, 4, dtype=wide)).dtype == dtype


def test_models_lie_channels_last() -> None:
    convolution = nn.Conv2d(3, 8, 5)
    assert not convolution.weight.is_contiguous(memory_format=torch.channels_last)
    placed: Any = place(convolution, CPU, "float32")
    assert placed is convolution
    assert placed.weight.is_contiguous(memory_format=torch.channels_last)


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


def test_in_steps_no_block_gets_pages_of_its_own() -> None:
    libc = device._glibc()
    if libc is None or not hasattr(libc, "mallinfo2"):
        pytest.skip("another libc")

    def blocks_with_pages_of_their_own() -> int:
        device._freed_bytes(libc)  # says what mallinfo2 returns
        return int(libc.mallinfo2().hblks)

    before = blocks_with_pages_of_their_own()
    with reuse_all_memory():
        inside = torch.ones(2**24)  # 64 MiB, above glibc's largest threshold
        assert blocks_with_pages_of_their_own() == before
    outside = torch.ones(2**24)
    assert blocks_with_pages_of_their_own() == before + 1
    assert len(inside) == len(outside)


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
