"""How many cores there are to use."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """Number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent outside Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1
