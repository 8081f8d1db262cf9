"""Products in bfloat16, with a workaround for an error in oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


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
    places = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    return tuple(
        tap
        for tap in range(taps)
        if not any(0 <= at * stride + tap * dilation - padding < size for at in range(places))
    )
