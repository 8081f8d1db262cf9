"""Flower's log: where it goes for a while, and its colors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def flower_logs(shown: int, file: Path | None = None) -> Iterator[None]:
    """Context in which Flower shows log records from a level on; afterwards as before."""
    import flwr.common  # noqa: F401  gives its log the handlers that are changed here

    flower = logging.getLogger("flwr")
    before = flower.level
    if file is None:
        flower.setLevel(shown)
        try:
            yield
        finally:
            flower.setLevel(before)
        return
    levels = {handler: handler.level for handler in flower.handlers}
    written = logging.FileHandler(file, encoding="utf-8", delay=True)
    written.setFormatter(logging.Formatter("%(levelname)s :      %(message)s"))
    flower.setLevel(logging.INFO)
    for handler in levels:
        handler.setLevel(shown)
    flower.addHandler(written)
    try:
        yield
    finally:
        flower.removeHandler(written)
        written.close()
        flower.setLevel(before)
        for handler, level in levels.items():
            handler.setLevel(level)


def plain_log() -> None:
    """Print Flower's log without colors, unless it goes to a terminal that wants them."""
    for handler in logging.getLogger("flwr").handlers:
        if isinstance(handler, logging.StreamHandler) and hasattr(handler, "colored"):
            stream = handler.stream
            # A notebook or a test may have replaced stderr while Flower was loaded, and closed it.
            is_open = not getattr(stream, "closed", False)
            is_terminal = is_open and getattr(stream, "isatty", lambda: False)()
            handler.colored = is_terminal and not os.environ.get("NO_COLOR")
