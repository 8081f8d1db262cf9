"""How many cores there are, and one thread at a time where threads share something."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedul_flwr.errors import UserError


def usable_cpus() -> int:
    """Number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent outside Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def refuse_cpus(client_cpus: float) -> None:
    """Refuse a number of CPUs for a client that Flower does not take or this machine lacks."""
    available = usable_cpus()
    if client_cpus != int(client_cpus) or not 1 <= client_cpus <= available:
        raise UserError(
            f"client CPUs is {client_cpus}; Flower takes whole CPUs, at least 1, and this machine "
            f"has {available}.",
            "setting-out-of-range",
        )


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
