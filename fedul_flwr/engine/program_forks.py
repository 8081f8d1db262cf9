"""What processes need that fork Flower's programs, which take seconds to load."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAY_LOAD_MUCH = sys.platform == "linux"
"""Whether forks may use torch and Ray, once loaded; on macOS libraries of the system forbid it."""


def load_program(name: str) -> Callable[[], Any]:
    """The function of one of Flower's programs, with all that it imports."""
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=name)
    program: Callable[[], Any] = entry.load()
    return program


def forked(name: str, *others: socket.socket) -> bool:
    """Fork this process; whether this is the new one, in which ``others`` are closed.

    Parameters
    ----------
    name : of the new process where processes are listed, on Linux; 15 bytes at most.
    """
    if os.fork():
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in others:
        other.close()
    return True


def forget_app() -> None:
    """Let this package be imported anew, from the app that Flower is given."""
    for module in [name for name in sys.modules if name.partition(".")[0] == "fedul_flwr"]:
        del sys.modules[module]
