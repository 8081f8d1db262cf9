"""Environment variables of a SuperLink of our own, of its programs and of Ray."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from fedul_flwr.config.references import USER_PATH
from fedul_flwr.engine.process_tree import MARK
from fedul_flwr.errors import UserError
from fedul_flwr.results.environment import COMMIT, git_commit

HOST = "127.0.0.1"
COMMANDS_LOG = "flwr.log"
"""File in the SuperLink's home with what its commands write to stderr."""
RAY_TOKEN = "ray-token"
"""File in the SuperLink's home with the token of its Ray."""


def superlink_environment(home: Path, ray_address: str) -> dict[str, str]:
    """Environment of a SuperLink and all that it starts.

    Parameters
    ----------
    home : its ``FLWR_HOME``, which also holds Ray's session.
    ray_address : Ray cluster that it uses; empty for one of its own.
    """
    env = dict(os.environ)
    env |= _ray_environment(env, home, ray_address)
    env[MARK] = str(home)
    env["FLWR_HOME"] = str(home)
    env["FLWR_TELEMETRY_ENABLED"] = "0"
    env["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    env.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")  # seconds; Flower's are 1
    # Silences Ray's warning about a future change in hiding GPUs.
    env["PYTHONWARNINGS"] = ",".join(
        filter(None, [env.get("PYTHONWARNINGS"), "ignore::FutureWarning:ray._private.worker"])
    )
    if env.get("PYTHONDONTWRITEBYTECODE") and not _is_compiled():
        # Common in containers; without it each of a dozen processes would compile Flower again.
        del env["PYTHONDONTWRITEBYTECODE"]
        env.setdefault("PYTHONPYCACHEPREFIX", str(home / "pycache"))
    # Directory of the user's own methods and models, searched last.
    env.setdefault(USER_PATH, str(Path.cwd()))
    env[COMMIT] = git_commit() or ""
    env["PATH"] = os.pathsep.join([str(_scripts_directory()), env.get("PATH", os.defpath)])
    return without_proxy(env)


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
    own = [key for key in ("no_grpc_proxy", "NO_GRPC_PROXY") if key in env]
    for key in ("NO_PROXY", "no_proxy", *own):
        env[key] = ",".join(filter(None, [env.get(key), HOST, "localhost"]))
    return env


def _ray_environment(env: dict[str, str], home: Path, ray_address: str) -> dict[str, str]:
    """Ray's environment variables; those of another cluster are taken out of ``env``."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_DASHBOARD_LOG_INFO": "1"}
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
        "RAY_AUTH_TOKEN_PATH": str(home / RAY_TOKEN),
    }


def _is_compiled() -> bool:
    """Whether Flower was installed with its bytecode."""
    spec = importlib.util.find_spec("flwr")
    return bool(spec and spec.cached and Path(spec.cached).exists())


def _scripts_directory() -> Path:
    """Directory of this interpreter's Flower programs."""
    candidates = [
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
    ]
    for candidate in candidates:
        if shutil.which("flower-superexec", path=str(candidate)):
            return candidate
    raise UserError(
        f"Flower's programs were not found beside {sys.executable}; "
        "install them with: pip install 'flwr[simulation]'"
    )
