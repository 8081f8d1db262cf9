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
    retain_freed_memory,
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


def test_without_capabilities_it_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)  # torch before 2.9
    assert choose_dtype("auto", nn.Linear(300, 500), CPU) == torch.float32


@pytest.mark.parametrize("supported", [True, False])
def test_on_cuda_the_driver_says(monkeypatch: pytest.MonkeyPatch, supported: bool) -> None:
    def answer(including_emulation: bool = True) -> bool:
        assert including_emulation is False
        return supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", answer)
    assert fast_bfloat16(torch.device("cuda")) is supported


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_a_precision_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_tile": True}, raising=False)
    assert choose_dtype(name, nn.Linear(2, 2), CPU) == getattr(torch, name)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_products_run_in_the_precision(name: str) -> None:
    dtype = getattr(torch, name)
    layer = place(nn.Linear(4, 4), CPU, name)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert next(layer.parameters()).dtype == wide
    with autocast(CPU, dtype, strided=False):
        assert layer(torch.zeros(1, 4, dtype=wide)).dtype == dtype


@pytest.mark.parametrize("strided", [False, True])
def test_models_with_strides_have_float32_where_bfloat16_would_be_wrong(strided: bool) -> None:
    # One pixel for three taps: two of them meet nothing.
    layer = nn.Conv2d(1, 1, 3, stride=2, padding=1)
    with autocast(CPU, torch.bfloat16, strided=strided):
        found = layer(torch.zeros(1, 1, 1, 1)).dtype
    assert found == (torch.float32 if strided else torch.bfloat16)


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


def test_freed_memory_is_kept_and_released_where_glibc_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(retain_freed_memory(), bool)
    release_freed_memory()
    monkeypatch.setattr(device, "_glibc", lambda: None)  # musl, macOS
    assert retain_freed_memory.__wrapped__() is False
    release_freed_memory()


@pytest.mark.parametrize(
    ("refused", "done"), [((), True), ((-3,), False), ((-1,), False), ((-3, -1), False)]
)
def test_memory_is_kept_by_both_thresholds_of_glibc(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[int, ...], done: bool
) -> None:
    # glibc's malloc.h: M_TRIM_THRESHOLD is -1 and M_MMAP_THRESHOLD is -3; mallopt gives 1 or 0.
    told: dict[int, int] = {}

    def mallopt(name: int, value: int) -> int:
        told[name] = value
        return int(name not in refused)

    monkeypatch.setattr(device, "_glibc", lambda: SimpleNamespace(mallopt=mallopt))
    assert retain_freed_memory.__wrapped__() is done
    if done:
        assert told == {-3: 32 * 2**20, -1: 2**31 - 1}


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


def test_without_glibc_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_glibc", lambda: None)
    with reuse_all_memory():
        pass


@pytest.mark.parametrize("name", ["", "musl", "glibc"])
def test_only_glibc_is_asked_for_its_thresholds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: (name, "2.36"))
    assert (device._glibc.__wrapped__() is not None) == (name == "glibc")


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


def test_glibc_counts_what_was_freed() -> None:
    libc = device._glibc()
    if libc is None or not hasattr(libc, "mallinfo2") or not retain_freed_memory():
        pytest.skip("another libc")
    blocks = [torch.ones(2**18) for _ in range(72)]  # 72 MiB in pieces below every threshold
    before = device._freed_bytes(libc)
    del blocks
    assert device._freed_bytes(libc) >= before + 72 * 2**20
    release_freed_memory()
