"""The process from which those that run clients are forked.

It loads torch and the client app while the command does the same, so it is started first of all:
this module imports nothing that is slow.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from types import ModuleType


def fork_server() -> ForkServerContext:
    """The context whose processes are forks of one that has loaded what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedul_flwr.engine.worker"])
    return context


def load_early() -> None:
    """Begin to load, in the other process and without waiting; harmless if repeated."""
    fork_server()
    with without_main_module():
        forkserver.ensure_running()


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the program that runs: multiprocessing would import it in every process again."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before
