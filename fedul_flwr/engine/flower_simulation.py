"""A run on Ray, in Flower's simulation: a program of its own, and all its processes end with it.

Its processes inherit a mark in their environment, the folder in which they work. By it they are
found at the end, even after the operating system has given them another parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from fedul_flwr.config.base import USER_PATH
from fedul_flwr.engine.shell import without_proxy
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig

PREFIX = "fedul-"
"""Begin of the name of a simulation's folder."""
MARK = "FEDUL_SIMULATION"
"""Environment variable of a simulation's processes: its folder."""
REASON = "reason.txt"
"""File in this folder with the error that ended the simulation."""
_PROGRAM = "fedul_flwr.engine.ray_program"
_RAY_TOKEN = "ray-token"
_PATHS = {"FEDUL_CACHE", USER_PATH, "HF_HOME", "MLFLOW_TRACKING_URI"}
"""Variables with paths, which may be relative to the user's working folder."""
_PATIENCE = 5.0
"""Seconds that a cluster has to answer."""
_STOP_SECONDS = 30.0


def run_on_ray(
    config: RunConfig, clients: int, cpus: int, gpus: float, ray_address: str, log_file: Path
) -> str:
    """Run, and wait for the end; returns why it failed, empty if it has not."""
    home = new_home()
    each = {"num_cpus": cpus, "num_gpus": gpus}
    order = {"settings": config.to_flat(), "clients": clients, "each": each}
    try:
        with log_file.open("ab") as log:
            program = subprocess.Popen(
                # -P: modules in the user's directory must not shadow those that Flower imports.
                [sys.executable, "-P", "-m", _PROGRAM],
                # Ray puts its working folder first on its workers' path: a `queue.py` of the user's
                # would run there in place of Python's.
                cwd=home,
                env=simulation_environment(home, ray_address),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
            )
        assert program.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                program.stdin.write(f"{json.dumps(order)}\n".encode())
                program.stdin.flush()
            program.wait()
        finally:
            with contextlib.suppress(BrokenPipeError):
                program.stdin.close()  # at this it ends what it has started, then itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(_STOP_SECONDS)
        if program.returncode == 0:
            return ""
        if (home / REASON).exists():
            return (home / REASON).read_text(encoding="utf-8")
        return (
            f"Flower's simulation ended with exit code {program.returncode} and without a result; "
            "it was killed, perhaps for want of memory."
        )
    finally:
        end_marked(home)  # if it was killed before it could


def new_home() -> Path:
    """Make a folder with a path short enough for Ray's sockets, which have at most 103 bytes."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    if len(str(path)) > 34 and Path("/tmp").is_dir():
        path.rmdir()
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    token = path / _RAY_TOKEN
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return path


def end_marked(home: Path, patience: float = 3.0) -> None:
    """End every process with this folder as its mark but this one, then remove the folder."""
    deadline = time.monotonic() + 30.0
    # Several passes: a process may be started while the others are being ended.
    while (left := _marked(home)) and time.monotonic() < deadline:
        end_processes(left, patience)
        patience = min(patience, 0.2)
    shutil.rmtree(home, ignore_errors=True)


def _marked(home: Path) -> list[psutil.Process]:
    """Marked processes, and those below them: Ray's workers overwrite their environment."""
    processes: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(home):
                processes |= {process, *process.children(recursive=True)}
    return [process for process in processes if process.pid != os.getpid() and is_alive(process)]


def end_processes(processes: list[psutil.Process], patience: float = 3.0) -> None:
    """Ask all to end, then kill those that did not within ``patience`` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _wait_gone(processes, patience)
    for process in filter(is_alive, processes):
        with contextlib.suppress(psutil.Error):
            process.kill()
    _wait_gone(processes, 2.0)


def _wait_gone(processes: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not count (its parent may never collect it)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def simulation_environment(home: Path, ray_address: str) -> dict[str, str]:
    """Environment of a simulation and all that it starts."""
    env = dict(os.environ)
    env |= _ray_environment(env, home, ray_address)
    env |= {MARK: str(home), "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    env["PYTHONUTF8"] = "1"
    # Silences Ray's warning about a future change in hiding GPUs.
    env["PYTHONWARNINGS"] = ",".join(
        filter(None, [env.get("PYTHONWARNINGS"), "ignore::FutureWarning:ray._private.worker"])
    )
    # Directory of the user's own methods and models, searched last.
    env.setdefault(USER_PATH, str(Path.cwd()))
    # Its working folder is another one.
    for name in _PATHS & env.keys():
        env[name] = absolute(env[name])
    if path := env.get("PYTHONPATH"):
        env["PYTHONPATH"] = os.pathsep.join(map(absolute, path.split(os.pathsep)))
    return without_proxy(env)


def _ray_environment(env: dict[str, str], home: Path, ray_address: str) -> dict[str, str]:
    """Ray's environment variables; those of another cluster are taken out of ``env``."""
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_DASHBOARD_LOG_INFO": "1",
        "RAY_COLOR_PREFIX": "0",
    }
    if ray_address:
        return {**quiet, "RAY_ADDRESS": ray_address}
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
        env.pop(name, None)
    preferred = {
        # Flower's actors have another environment and cannot use workers started in advance.
        "RAY_prestart_worker_first_driver": "0",
        # Ray lowers its workers' priority by 15, but here the user waits for the workers.
        "RAY_worker_niceness": "0",
        # Ray would reserve 30 % of the memory; models take megabytes, and Ray spills the rest.
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(2 * 1024**3),
    }
    return {
        **{name: env.get(name, value) for name, value in preferred.items()},
        **quiet,
        "RAY_TMPDIR": str(home),
        # Without its token other users of the machine could run programs by Ray's ports, too.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home / _RAY_TOKEN),
    }


def absolute(target: str) -> str:
    """A path that does not depend on the working folder; so for a database ``sqlite:///PATH``."""
    head = "sqlite:///" if target.startswith("sqlite:///") else ""
    path = target.removeprefix(head)
    if path in ("", "databricks") or path.startswith("~") or (not head and ":" in path):
        return target
    return head + str(Path(path).absolute())


def refuse_silent_cluster(address: str) -> None:
    """Refuse a cluster that does not answer; ``auto`` is left to Ray, which looks here."""
    if address == "auto":
        return
    match = re.fullmatch(r"(\[[^]]+\]|[^:/]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise UserError(
            f"--ray-address {address!r} must be HOST:PORT of the head of a cluster, or auto.",
            "address-wrong",
            option="--ray-address",
        )
    try:
        with socket.create_connection((match[1].strip("[]"), int(match[2])), _PATIENCE):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"--ray-address {address}: no Ray cluster answers there ({why}); `ray status` on its "
            "head says whether it runs.",
            "ray-not-reachable",
            option="--ray-address",
        ) from error
    if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
        _refuse_other_program(address)


def _refuse_other_program(address: str) -> None:
    """Refuse what does not speak gRPC, as the head of a cluster does."""
    import grpc  # type: ignore[import-untyped]

    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            grpc.channel_ready_future(channel).result(_PATIENCE)
        except grpc.FutureTimeoutError as error:
            raise UserError(
                f"--ray-address {address}: what answers there is no Ray cluster.",
                "ray-not-reachable",
                option="--ray-address",
            ) from error
