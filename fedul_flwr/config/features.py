"""Names of extractors, as setting ``features`` has them."""

from __future__ import annotations

import re

TORCHVISION, HUB, RUN = "torchvision:", "huggingface:", "run:"
"""Beginnings of names that are not those of a user's own function."""

_SIDE = re.compile(r"(.+)@([1-9]\d{0,3})")


def split_side(name: str) -> tuple[str, int]:
    """``NAME@SIDE`` as name and side in pixels; 0 without a side."""
    found = _SIDE.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)
