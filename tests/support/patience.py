"""Waiting for real programs: as long as a quiet machine needs, however busy this one is.

A second counts as much less as there are more processes that want to run than there are cores. It
is seconds without progress that are limited, wherever progress can be seen.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

STEP = 0.1
"""Seconds between two looks."""
LONGEST = 5.0
"""Seconds that the time between two looks counts at most: more of them means a machine or process
that was stopped in between, and the programs with it."""
PATIENCE = 90.0
"""Quiet seconds without progress after which a program counts as stuck."""


def quiet_seconds(
    seconds: float = PATIENCE,
    progress: Callable[[], Any] = lambda: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    load: Callable[[], float] = lambda: os.getloadavg()[0],
) -> Iterator[float]:
    """Yield the seconds that are left until a quiet machine would have had ``seconds``.

    They count from the last change of what ``progress`` returns.
    """
    cores, left, before, seen = os.cpu_count() or 1, seconds, clock(), progress()
    while left > 0:
        yield left
        sleep(STEP)
        now = clock()
        left -= min(now - before, LONGEST) / max(1.0, load() / cores)
        before = now
        if (found := progress()) != seen:
            left, seen = seconds, found


def wait_until(
    condition: Callable[[], Any],
    seconds: float,
    what: str,
    progress: Callable[[], Any] = lambda: None,
) -> Any:
    """The first true result of ``condition``, looked at for so many quiet seconds of no progress.

    Raises
    ------
    AssertionError
        With ``what`` did not happen.
    """
    for _ in quiet_seconds(seconds, progress):
        if found := condition():
            return found
    raise AssertionError(f"{what}: not in {seconds:g} seconds of a quiet machine")


def wait_for_end(
    process: subprocess.Popen[Any],
    seconds: float = PATIENCE,
    progress: Callable[[], Any] = lambda: None,
) -> int:
    """Exit code of a process that ends within so many quiet seconds of no progress."""
    what = f"the end of {process.args}"
    wait_until(lambda: process.poll() is not None, seconds, what, progress)
    return int(process.returncode)
