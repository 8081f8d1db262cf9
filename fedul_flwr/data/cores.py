"""How many cores there are to use."""

from __future__ import annotations

import os

from fedul_flwr.errors import UserError


def usable_cpus() -> int:
    """Number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent outside Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def refuse_cpus(client_cpus: float) -> None:
    """Refuse a number of CPUs for a client that Flower does not take or this machine lacks."""
    if client_cpus != int(client_cpus) or client_cpus < 1:
        raise UserError(f"client CPUs is {client_cpus}; Flower takes whole CPUs, at least 1.")
    if client_cpus > (available := usable_cpus()):
        raise UserError(f"client CPUs is {client_cpus}; this machine has {available}.")
