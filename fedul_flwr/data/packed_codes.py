"""Codes of L bits, packed into bytes: their form, and work on them in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError


def check_num_bits(num_bits: int) -> None:
    """Refuse an L that is not a positive multiple of 8."""
    if num_bits < 8 or num_bits % 8:
        raise UserError(
            f"codes have {num_bits} bits; L must be a positive multiple of 8",
            "argument-not-allowed",
        )


def check_codes(codes: Bytes) -> None:
    """Refuse anything but uint8 ``(n, L / 8)``."""
    if codes.ndim != 2 or codes.dtype != np.uint8 or codes.shape[1] == 0:
        raise UserError(
            f"codes are {codes.dtype} {codes.shape}; they must be uint8 (points, L / 8)",
            "array-wrong",
        )


def blocks(length: int, size: int = 1024) -> Iterator[slice]:
    """``range(length)`` in slices of ``size``, the last one shorter."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
