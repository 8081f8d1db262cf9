"""How a command behaves in a shell: signals that end it, printing that never fails, its log."""

from __future__ import annotations

import errno
import importlib.util
import io
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext  # Windows has none

_GONE = {errno.EPIPE, errno.EIO}
"""Errors of an output whose reader, or terminal, has gone."""
_ENDING = ("SIGTERM", "SIGHUP")


class Terminated(KeyboardInterrupt):
    """A signal has asked this process to end: what is under way is cleaned up, as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def end_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP raise :class:`Terminated`, unless they are ignored (``nohup``)."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    for name in _ENDING:
        number = getattr(signal, name, None)  # Windows lacks one
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, unwind)


def follow_parent() -> None:
    """Let this process, one of :mod:`multiprocessing`, end when its parent has, however it did.

    Ctrl-C reaches all processes of a terminal; the parent alone handles it and ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def exit_code(stop: KeyboardInterrupt) -> int:
    """Exit code of a command that was stopped, as shells have it: 130 after Ctrl-C."""
    return 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)


def stop_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C or signal that ``error`` came of, if any: Python wraps one that reaches it while a
    class is being made, as when modules are loaded."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause


def open_streams() -> None:
    """Let this process, and those that it starts, print wherever their output goes.

    A stream that was closed (``>&-``, as daemons do) goes nowhere; without this the next file that
    is opened would get its number, and what is printed. Output whose reader goes (``| head``) goes
    nowhere from then on, and the work goes on. A letter that the stream's encoding lacks becomes a
    question mark. Streams that a program has replaced, such as a notebook's, stay as they are.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given: this one.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if before is None or (isinstance(before, io.TextIOWrapper) and _number(before) == number):
            setattr(sys, name, _lasting(number, before))


def _lasting(number: int, before: io.TextIOWrapper | None) -> io.TextIOWrapper:
    raw = _Output(number, "w", closefd=False)
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
    before.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding,
        errors="replace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _number(stream: io.TextIOWrapper) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1


class _Output(io.FileIO):
    """An output that swallows what nobody reads any more."""

    def write(self, data: Any, /) -> int:
        """Write ``data``, or nothing once the reader has gone."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # for processes that are started from now on, too
            os.close(nowhere)
            return len(data)


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy of environment variables in which no proxy comes between processes of this machine.

    Flower's programs use httpx, which fails at its start for a SOCKS proxy, wherever it would
    connect to, unless it has socksio: without that, such a proxy is left out.
    """
    env = dict(environment)
    if importlib.util.find_spec("socksio") is None:
        proxies = [key for key in env if key.lower().endswith("_proxy")]
        for key in proxies:
            if env[key].lower().startswith("socks"):
                del env[key]
    # gRPC does not look at no_proxy where it has a variable of its own.
    keys = [key for key in ("no_grpc_proxy", "NO_GRPC_PROXY") if key in env]
    for key in ("NO_PROXY", "no_proxy", *keys):
        env[key] = ",".join(filter(None, [env.get(key), "127.0.0.1", "localhost"]))
    return env


# Flower's log: where it goes for a while, and its colors.


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


# The process from which those that run clients are forked.

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
    from multiprocessing import forkserver

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
