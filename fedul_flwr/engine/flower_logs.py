"""The level of Flower's log for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def flower_logs(level: int) -> Iterator[None]:
    """Context in which Flower logs records from ``level`` on; afterwards as before."""
    flower = logging.getLogger("flwr")
    before = flower.level
    flower.setLevel(level)
    try:
        yield
    finally:
        flower.setLevel(before)
