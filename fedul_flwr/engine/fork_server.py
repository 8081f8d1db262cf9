"""The process from which those that run clients are forked.

It loads torch and the client app while the command does the same, so it is started first of all:
this module imports nothing that is slow.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from types import ModuleType

_LONGEST = 60
"""Bytes of a temporary folder's path with which sockets of multiprocessing in it have at most 103,
as systems allow."""
_SHORT = "/tmp"


def fork_server() -> ForkServerContext:
    """The context whose processes are forks of one that has loaded what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedul_flwr.engine.worker"])
    return context


def load_early() -> None:
    """Begin to load, in the other process and without waiting; harmless if repeated."""
    fork_server()
    with started_apart():
        forkserver.ensure_running()


@contextmanager
def started_apart() -> Iterator[None]:
    """Context in which to start a process that imports no program or file that it need not.

    multiprocessing would import the program that runs in every process again. And Python would look
    for modules in the working folder first: a user's ``queue.py`` there would run in place of
    Python's. So that folder comes last, if it is on the path at all. Sockets lie in a folder with a
    short path.
    """
    main, path = sys.modules["__main__"], list(sys.path)
    safe, folder = os.environ.get("PYTHONSAFEPATH"), tempfile.tempdir
    sys.modules["__main__"] = ModuleType("__main__")
    here = {"", os.getcwd()}  # noqa: PTH109  as `sys.path` has it
    sys.path[:] = [folder for folder in path if folder not in here]
    sys.path += sorted(here & set(path))[-1:]
    os.environ["PYTHONSAFEPATH"] = "1"
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST and os.access(_SHORT, os.W_OK):
        tempfile.tempdir = _SHORT
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        sys.path[:] = path
        tempfile.tempdir = folder
        del os.environ["PYTHONSAFEPATH"]
        if safe is not None:
            os.environ["PYTHONSAFEPATH"] = safe
