"""How a command behaves in a shell: signals that end it, and printing that never fails."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from multiprocessing import parent_process
from types import FrameType
from typing import Any

_GONE = {errno.EPIPE, errno.EIO}
"""Errors of an output whose reader, or terminal, has gone."""
_ENDING = ("SIGTERM", "SIGHUP")


class Terminated(KeyboardInterrupt):
    """A signal has asked this process to end: what is under way is cleaned up, as after Ctrl-C.

    Attributes
    ----------
    number : of the signal.
    """

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
