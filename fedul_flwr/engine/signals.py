"""Signals that end a command, as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


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

    for name in _NAMES:
        number = getattr(signal, name, None)  # Windows lacks one
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, unwind)


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
