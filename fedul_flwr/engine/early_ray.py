"""Ray for one simulation, started before the simulation is there."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

from fedul_flwr.engine.program_forks import MAY_LOAD_MUCH, forked

_OF_ITS_OWN = {"num_cpus", "num_gpus"}
"""Options of ``ray.init`` that a Ray which runs already does not take."""


def start_ray(*others: socket.socket) -> socket.socket:
    """Fork a process that starts Ray, and ends it when the returned socket is closed.

    The socket gives Ray's address, or its end if Ray has not started or the user named another.

    Parameters
    ----------
    others : sockets that the new process must not keep open.
    """
    ours, its = socket.socketpair()
    if not forked("ray-starter", ours, *others):
        its.close()
        return ours
    if MAY_LOAD_MUCH and not os.environ.get("RAY_ADDRESS"):
        import ray

        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        its.sendall(ray.get_runtime_context().gcs_address.encode())
        its.recv(1)  # until the simulation has ended
    sys.exit()


class _NoPaths(list[str]):
    """Stays empty: Ray puts the working folder first on its workers' path, where a user's
    ``queue.py`` would run in place of Python's."""

    def extend(self, paths: Any, /) -> None:
        """Add nothing."""


def _job_without_paths() -> Any:
    from ray.job_config import JobConfig

    job = JobConfig()
    job._py_driver_sys_path = _NoPaths()
    return job


def use_ray(started: socket.socket, workers: str) -> None:
    """Let Flower connect to the Ray that :func:`start_ray` has started; it ends with this process.

    Parameters
    ----------
    workers : socket of the process from which Ray's workers are forked.
    """
    import ray

    file = Path(__file__).with_name("ray_worker.py")
    python = shlex.join([sys.executable, "-I", "-S", str(file), workers])
    init = ray.init

    def init_early(*, runtime_env: dict[str, Any], **options: Any) -> Any:
        options["job_config"] = _job_without_paths()
        address = started.recv(256).decode()  # the closure keeps the socket open
        if not address or _OF_ITS_OWN & options.keys():
            started.close()
            return init(runtime_env=runtime_env, **options)
        return init(address, runtime_env={**runtime_env, "py_executable": python}, **options)

    setattr(ray, "init", init_early)  # noqa: B010
