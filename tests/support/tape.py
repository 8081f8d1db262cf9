"""A step's operations on a CPU, recorded once and repeated as a CUDA graph repeats kernels.

A tape has the operations with the values of Python that they got, and the tensors that they read
and wrote. To play it means to do the same again in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """Context that records all operations."""

    def __init__(self) -> None:
        super().__init__()
        self._done: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        self._done.append((func, args, named, _made(result, (args, named))))
        return result

    def play(self) -> None:
        """Do everything again."""
        with torch.no_grad():
            for func, args, named, made in self._done:
                again = func(*args, **named)
                for old, new in zip(made, _made(again, (args, named)), strict=True):
                    old.copy_(new)


def _made(result: Any, given: Any) -> list[Tensor]:
    """Tensors of a result with memory of their own: no arguments, and no views of these."""
    memory = {_memory(t) for t in tree_leaves(given) if isinstance(t, Tensor)}
    return [t for t in tree_leaves(result) if isinstance(t, Tensor) and _memory(t) not in memory]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def record(run: Callable[[], None]) -> Callable[[], None]:
    """``run`` as a tape, which does not carry out what it records: what it has changed is undone by
    who calls it."""
    tape = Tape()
    with tape:
        run()
    return tape.play
