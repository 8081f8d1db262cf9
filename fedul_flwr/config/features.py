"""Names of extractors, as setting ``features`` has them."""

from __future__ import annotations

import re

from fedul_flwr.config.base import nearest

LITE0 = "efficientnet-lite0"
TORCHVISION, HUB, RUN = "torchvision:", "huggingface:", "run:"
"""Beginnings of names that are not those of a user's own function."""

_SIDE = re.compile(r"(.+)@([1-9]\d{0,3})")


def split_side(name: str) -> tuple[str, int]:
    """``NAME@SIDE`` as name and side in pixels; 0 without a side."""
    found = _SIDE.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)


def check_features(name: str) -> None:
    """Refuse a name that can be no extractor's with a ``ValueError``."""
    plain, _ = split_side(name)
    if plain and plain != LITE0 and ":" not in plain:
        forms = f"{LITE0}, torchvision:NAME, huggingface:NAME, run:DIRECTORY"
        hint = nearest(plain, [LITE0])
        raise ValueError(f"must be one of {forms} or 'package.module:function'{hint}")


def is_own_function(name: str) -> bool:
    """Whether ``name`` is that of a user's own function."""
    return ":" in name and not name.startswith((TORCHVISION, HUB, RUN))
