"""One thread at a time where a program has one thing for all its threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()


def _renew() -> None:
    """A new lock in a forked process: the thread that held the old one is not there."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def exclusive() -> Iterator[None]:
    """Context of one thread at a time; afterwards torch's generator and threads are as before.

    Runs, estimators and new models draw from torch's global generator, and runs change Flower's
    log. With one thread at a time a seed gives the same numbers among other threads as alone.
    """
    with _lock:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "get_rng_state"):
            yield
            return
        state, threads = torch.get_rng_state(), torch.get_num_threads()
        try:
            yield
        finally:
            torch.set_rng_state(state)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
