"""Device, precision, threads and memory of a process; products in bfloat16."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedul_flwr.errors import UserError

LARGE_MODEL = 150_000
"""Number of weights from which bfloat16 is faster, measured on an EPYC Zen 4 with AVX512_BF16:
without it, smaller models (LeNet, ``mlp``, ``cnn-small``) took 0.9 to 1.04 times as long, larger
ones 1.4 to 2.1 times."""

_LITTLE = 64 * 2**20
"""Bytes of freed memory that a process may keep between rounds."""
_MMAP_MAX, _MAPS = -4, 65_536
"""glibc's name of the most blocks that have pages of their own, and its default."""


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


@cache
def retain_freed_memory() -> bool:
    """Tell glibc to keep freed memory between the steps of a round; returns whether it worked.

    A training step frees and allocates tens of megabytes. If they were returned to the system each
    time, every step would need new zeroed pages: on a virtual machine up to half of its time.
    """
    libc = _glibc()
    if libc is None:
        return False
    # 32 MiB is glibc's largest threshold. Whole models and their messages are larger: if they were
    # kept too, they would fragment the heap.
    mmap_threshold, trim_threshold = -3, -1
    return bool(
        libc.mallopt(mmap_threshold, 32 * 2**20) and libc.mallopt(trim_threshold, 2**31 - 1)
    )


@contextmanager
def reuse_all_memory() -> Iterator[None]:
    """Context of steps that free and allocate the same sizes, in which no block is too large to
    be kept.

    :func:`retain_freed_memory` leaves blocks above 32 MiB with pages of their own: messages, and in
    steps the gradient of a large layer. Its pages would be new in every step, which takes longer
    than to compute it.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        if libc is not None:
            libc.mallopt(_MMAP_MAX, _MAPS)


def release_freed_memory() -> None:
    """Return free memory to the system if it is much: between rounds other clients need it.

    A small amount is kept: allocating 20 MB again takes 10 ms, as long as a step of a small model.
    """
    libc = _glibc()
    if libc is not None and _freed_bytes(libc) > _LITTLE:
        libc.malloc_trim(0)


def _freed_bytes(libc: ctypes.CDLL) -> float:
    """Bytes of freed memory that glibc keeps; infinity if unknown (before version 2.33)."""
    if not hasattr(libc, "mallinfo2"):
        return math.inf
    libc.mallinfo2.restype = _Usage
    return int(libc.mallinfo2().fordblks)


class _Usage(ctypes.Structure):
    """glibc's ``struct mallinfo2``; ``fordblks`` counts bytes that are free and kept."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def choose_device(name: str) -> torch.device:
    """Device for ``"auto"``, ``"cpu"`` or ``"cuda"``."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "Setting device = 'cuda': this machine has no usable CUDA device.",
            "machine-too-small",
            setting="device",
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    # One seed gives the same bits: some of cuDNN's gradients add in any order.
    torch.backends.cudnn.deterministic |= name == "cuda"
    return torch.device(name)


def fast_bfloat16(device: torch.device) -> bool:
    """Whether ``device`` multiplies bfloat16 matrices faster than float32 ones.

    CPUs do with AMX tiles (about eight times) or AVX-512's bfloat16 products (twice).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    find = getattr(torch.cpu, "get_capabilities", None)  # absent before torch 2.9
    capabilities: dict[str, bool] = find() if find else {}
    return any(capabilities.get(name) for name in ("amx_bf16", "amx_tile", "avx512_bf16"))


def choose_dtype(precision: str, model: nn.Module, device: torch.device) -> torch.dtype:
    """Data type of training for ``"auto"``, ``"float32"``, ``"bfloat16"`` or ``"float64"``.

    ``"auto"`` takes bfloat16 if it is faster for ``model``: for a small one the conversions take
    the time that the products save.
    """
    return dtype_of_size(precision, num_weights(model), device)


def num_weights(model: nn.Module) -> int:
    """Number of trainable and fixed weights, without buffers."""
    return sum(weight.numel() for weight in model.parameters())


def dtype_of_size(precision: str, size: int, device: torch.device) -> torch.dtype:
    """:func:`choose_dtype` for a model of ``size`` weights."""
    if precision == "auto":
        large = size >= LARGE_MODEL
        return torch.bfloat16 if large and fast_bfloat16(device) else torch.float32
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def autocast(
    device: torch.device, dtype: torch.dtype, *, strided: bool
) -> AbstractContextManager[object]:
    """Context in which products run in ``dtype`` if that is smaller than float32.

    ``strided`` as in :func:`~fedul_flwr.learning.device.products_in_bfloat16`.
    """
    if dtype == torch.bfloat16:
        return products_in_bfloat16(device, strided=strided)
    return nullcontext()


def move_model(model: nn.Module, device: torch.device, precision: str) -> nn.Module:
    """Move ``model`` to ``device``, channels last, converted to float64 if that is chosen."""
    wide = torch.float64 if precision == "float64" else torch.float32
    first, moved = next(model.parameters(), None), vars(model).get("_moved")
    # To walk through all modules and move nothing takes longer than a small step.
    if first is None or (first.device.type, first.dtype, moved) != (device.type, wide, device):
        model.to(device, wide).to(memory_format=torch.channels_last)
        vars(model)["_moved"] = device
    return model


def seed_draws(device: torch.device, seed: int) -> None:
    """Seed torch's global generators, from which dropout and random objectives draw.

    Where there is no GPU, ``torch.manual_seed`` keeps a stack trace for every call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def set_threads(count: int) -> None:
    """Let torch use ``count`` CPU threads; 0 keeps torch's own choice."""
    if count and torch.get_num_threads() != count:
        torch.set_num_threads(count)


def has_strides(model: nn.Module) -> bool:
    """Whether a convolution of ``model`` has a stride above 1."""
    return any(isinstance(layer, nn.Conv2d) and max(layer.stride) > 1 for layer in model.modules())


@contextmanager
def products_in_bfloat16(device: torch.device, *, strided: bool) -> Iterator[None]:
    """Context in which products and convolutions run in bfloat16 on ``device``.

    Parameters
    ----------
    strided : whether the model has strides (:func:`has_strides`).
    """
    # Other models do not need it, and checking every call costs small ones 2 % of a step.
    repaired = _SmallMapsInFloat32() if strided and device.type == "cpu" else nullcontext()
    with torch.autocast(device.type, dtype=torch.bfloat16), repaired:
        yield


class _SmallMapsInFloat32(TorchFunctionMode):
    """Runs convolutions in float32 if some of their taps never overlap the image.

    The gradient of such a tap is zero. oneDNN's bfloat16 kernels for strided convolutions do not
    write it (seen with torch 2.15 on AVX-512), so it has the old content of the memory, sometimes
    NaN. In float32 it is correct.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func is not torch.conv2d or not _has_idle_taps(*args, **named):
            return func(*args, **named)
        with torch.autocast("cpu", enabled=False):
            return func(*map(_wide, args), **{key: _wide(value) for key, value in named.items()})


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def _has_idle_taps(input: Tensor, weight: Tensor, *rest: Any, **named: Any) -> bool:
    options = dict(zip(("bias", "stride", "padding", "dilation"), rest, strict=False)) | named
    stride, padding = options.get("stride", 1), options.get("padding", 0)
    if isinstance(padding, str):  # "valid" has no padding, "same" no strides
        return False
    steps = (stride, padding, options.get("dilation", 1))
    return any(
        idle_taps(input.shape[axis], weight.shape[axis], *(_along(axis, step) for step in steps))
        for axis in (-2, -1)
    )


def _along(axis: int, value: int | tuple[int, ...]) -> int:
    return value if isinstance(value, int) else value[axis if len(value) > 1 else 0]


@cache
def idle_taps(size: int, taps: int, stride: int, padding: int, dilation: int) -> tuple[int, ...]:
    """The taps of a kernel that cover only padding at every position, along one axis.

    Parameters
    ----------
    size : pixels of the image, >= 1.
    taps, stride, padding, dilation : of the kernel, as ``torch.nn.Conv2d`` means them.
    """
    outputs = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    return tuple(
        tap
        for tap in range(taps)
        if not any(0 <= at * stride + tap * dilation - padding < size for at in range(outputs))
    )
