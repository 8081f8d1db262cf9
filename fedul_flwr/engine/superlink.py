"""A Flower SuperLink for simulations in a folder of its own, which ends all its processes on exit.

``python -m fedul_flwr.engine.superlink HOME`` does it from a shell. With a further ``-`` it
first waits for the end of its standard input, which is that of the process that has opened it.

``flwr run`` reuses any SuperLink on Flower's default port, even one from another checkout, and
leaves it running. Here each one has a free port, a temporary ``FLWR_HOME``, which is its working
folder too, and a mark in its environment. All its processes inherit the mark, so that they are
found at the end even after the operating system has re-parented them.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from fedul_flwr.config.base import USER_PATH
from fedul_flwr.data.run_files.run_lock import SUPERLINK_HOME
from fedul_flwr.data.run_files.store import COMMIT, git_commit
from fedul_flwr.engine.flower_run import FlowerProgram, scripts_directory
from fedul_flwr.errors import UserError

PREFIX = "fedul-"


def end_superlink(
    home: Path,
    started: Callable[[], list[psutil.Process]] = list,
    patience: float = 3.0,
) -> None:
    """End every process of the SuperLink with this home, then remove the home.

    Parameters
    ----------
    home : its ``FLWR_HOME``.
    started : returns processes known to belong to it; others are found by their mark.
    patience : seconds that they have to end by themselves.
    """
    if not (home / "config.toml").is_file() or not home.name.startswith(PREFIX):
        return  # never delete a directory that was not created by us
    deadline = time.monotonic() + 10 * patience
    wait = patience
    # Several passes: a process may be started while the others are being ended.
    while (left := _living(home, started())) and time.monotonic() < deadline:
        end_processes(left, wait)
        wait = 0.2
    shutil.rmtree(home, ignore_errors=True)


def _living(home: Path, started: list[psutil.Process]) -> list[psutil.Process]:
    """Every live process of a SuperLink: its descendants, and re-parented ones by their mark."""
    processes = {process.pid: process for process in started}
    for process in started:  # processes that children of a dead SuperLink have started since
        with contextlib.suppress(psutil.Error):
            processes |= {child.pid: child for child in process.children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(SUPERLINK_HOME) == str(home):
                processes[process.pid] = process
    processes.pop(os.getpid(), None)
    return [process for process in processes.values() if is_alive(process)]


def end_processes(processes: list[psutil.Process], patience: float = 3.0) -> None:
    """Ask all to end, then kill those that did not within ``patience`` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _wait_gone(processes, patience)
    for process in processes:
        if is_alive(process):
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


def runs_program(process: psutil.Process, name: str) -> bool:
    """Whether a live process runs the program of this name, perhaps by an interpreter."""
    try:
        words = [process.name(), *process.cmdline()[:3]]
    except psutil.Error:
        return False
    return is_alive(process) and any(Path(word).name == name for word in words)


if __name__ == "__main__":
    if sys.argv[2:] == ["-"]:
        sys.stdin.read()
    end_superlink(Path(sys.argv[1]))


HOST = "127.0.0.1"
RAY_TOKEN = "ray-token"
"""File in the SuperLink's home with the token of its Ray."""
_PATHS = {"FEDUL_CACHE", USER_PATH, "HF_HOME", "MLFLOW_TRACKING_URI"}
"""Variables with paths, which may be relative to the user's working folder."""
_ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
_START_SECONDS = 90.0
"""Seconds to wait until a SuperLink answers."""
_PROGRAM = "fedul_flwr.engine.superlink_guard"


class LocalSuperLink:
    """Start a simulation SuperLink on entry, end its whole process tree on exit.

    Parameters
    ----------
    persistent : leave it running on exit and print how to stop it.
    ray_address : Ray cluster that runs the clients, as ``host:port`` or ``auto``; empty for one of
        its own.
    home : folder for its home. The machines of a cluster must reach it: clients' code lies there.

    Attributes
    ----------
    address : ``host:port`` of its HTTP interface, empty before entry.
    home : its temporary ``FLWR_HOME``. It also holds Ray's session directory and is removed on
        exit.
    """

    def __init__(
        self,
        *,
        persistent: bool = False,
        ray_address: str = "",
        home: Path | None = None,
    ) -> None:
        self.keep = persistent
        self.ray_address = ray_address
        self._home = home
        self.address = ""
        self.home = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._flwr: FlowerProgram | None = None
        self._seen: dict[int, psutil.Process] = {}

    @property
    def pid(self) -> int:
        """Process id of the SuperLink, 0 before entry."""
        return self._process.pid if self._process else 0

    @property
    def flwr(self) -> FlowerProgram:
        """The program ``flwr``, which gives this SuperLink commands; only after entry."""
        assert self._flwr is not None
        return self._flwr

    def __enter__(self) -> Self:
        try:
            self.home = _new_home(self._home)
            environment = superlink_environment(self.home, self.ray_address)
            self._flwr = FlowerProgram(environment)
            if not self.keep:
                self._guardian = _end_after_this_process(self.home, environment)
            self._start(environment)
        except BaseException:  # Ctrl-C too: without a `with` block nothing else stops the processes
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.keep and self.exit_code() is None:
            print(
                f"The SuperLink keeps running on {self.address}. Ask it with "
                f"`FLWR_HOME={self.home} flwr list`; stop it with "
                f"`{sys.executable} -P -m fedul_flwr.engine.superlink {self.home}`."
            )
            self.flwr.close()
        else:
            self.stop()

    def exit_code(self) -> int | None:
        """Exit code of the SuperLink if it has ended, else None."""
        return self._process.poll() if self._process else None

    def log_tail(self, lines: int = 5) -> str:
        """Last lines of the SuperLink's own log."""
        try:
            text = (self.home / "superlink.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def simulation(self) -> psutil.Process | None:
        """Return the live process of the ServerApp and Ray, if there is one."""
        for process in self._descendants():
            if runs_program(process, "flwr-simulation"):
                return process
        return None

    def stop(self) -> None:
        """End every process of this SuperLink and remove its directory; harmless if repeated."""
        with _uninterrupted():
            if self._flwr is not None:
                self._flwr.close()
            if self.home != Path():
                end_superlink(self.home, self._descendants)
            for process in filter(None, (self._process, self._guardian)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1)
                if process.stdin is not None:
                    process.stdin.close()

    def _start(self, environment: Mapping[str, str]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        for attempt in range(3):
            port = _free_port()
            self.address = f"{HOST}:{port}"
            (self.home / "config.toml").write_text(
                '[superlink]\ndefault = "fedul"\n\n[superlink.fedul]\n'
                f'address = "{self.address}"\ninsecure = true\n',
                encoding="utf-8",
            )
            self._process = self._spawn(port, environment)
            while self._process.poll() is None and time.monotonic() < deadline:
                # If it is dead after an answer, the answer came from another program on the port.
                if _is_healthy(port) and self._process.poll() is None:
                    return
                time.sleep(0.05)
            # Between choosing the port and using it another program may have taken it.
            if "address already in use" not in self.log_tail(50) or attempt == 2:
                break
        code = self.exit_code()
        reason = f"ended with exit code {code}" if code is not None else "did not answer in time"
        raise UserError(
            f"Flower's SuperLink could not be started: it {reason}.\n{self.log_tail()}",
            "flower-failed",
        )

    def _spawn(self, port: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        options = ["--insecure", "--simulation", "--disable-runtime-dependency-installation"]
        options += ["--host", HOST, "--port", str(port)]
        with (self.home / "superlink.log").open("wb") as log:
            return subprocess.Popen(
                # -P: modules in the user's directory must not shadow those that Flower imports.
                [sys.executable, "-P", "-m", _PROGRAM, *options],
                # Ray puts its working folder first on its workers' path: a `queue.py` of the user's
                # would run there in place of Python's.
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
            )

    def _descendants(self) -> list[psutil.Process]:
        """Every process seen so far, dead ones included."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(psutil.Error):
                root = self._seen.setdefault(self.pid, psutil.Process(self.pid))
                for child in root.children(recursive=True):
                    self._seen[child.pid] = child
        return list(self._seen.values())


def _end_after_this_process(home: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that cleans up after this one, should it be killed before it can.

    (Flower's processes would then end by themselves, but Ray's agents would not.)
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fedul_flwr.engine.superlink", str(home), "-"],
        env=environment,
        stdin=subprocess.PIPE,  # closed when this process has ended, however it did
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_healthy(port: int) -> bool:
    # http.client ignores proxy settings.
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _new_home(home: Path | None = None) -> Path:
    """Make a directory in ``home``; without one, with a path short enough for Ray's sockets.

    These have at most 103 bytes.
    """
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    if home is None and len(str(path)) > 34 and Path("/tmp").is_dir():
        path.rmdir()
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    (path / "config.toml").touch()
    token = path / RAY_TOKEN
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return path


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the cleanup is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, n) for n in ("SIGINT", *_ENDING_SIGNALS) if hasattr(signal, n)]
    old = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def superlink_environment(home: Path, ray_address: str) -> dict[str, str]:
    """Environment of a SuperLink and all that it starts.

    Parameters
    ----------
    home : its ``FLWR_HOME``, which also holds Ray's session.
    ray_address : Ray cluster that it uses; empty for one of its own.
    """
    env = dict(os.environ)
    env |= _ray_environment(env, home, ray_address)
    env[SUPERLINK_HOME] = str(home)
    env["FLWR_HOME"] = str(home)
    env["PYTHONUTF8"] = "1"
    env["FLWR_TELEMETRY_ENABLED"] = "0"
    env["FLWR_DISABLE_UPDATE_CHECK"] = "1"
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
    # Its working folder is another one.
    for name in _PATHS & env.keys():
        env[name] = absolute(env[name])
    if path := env.get("PYTHONPATH"):
        env["PYTHONPATH"] = os.pathsep.join(map(absolute, path.split(os.pathsep)))
    env[COMMIT] = git_commit() or ""
    env["PATH"] = os.pathsep.join([str(scripts_directory()), env.get("PATH", os.defpath)])
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
    keys = [key for key in ("no_grpc_proxy", "NO_GRPC_PROXY") if key in env]
    for key in ("NO_PROXY", "no_proxy", *keys):
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


def absolute(target: str) -> str:
    """A path that does not depend on the working folder; so for a database ``sqlite:///PATH``.

    What names another kind of place stays: ``http://…``, ``databricks``, ``~/…``.
    """
    head = "sqlite:///" if target.startswith("sqlite:///") else ""
    path = target.removeprefix(head)
    if path in ("", "databricks") or path.startswith("~") or (not head and ":" in path):
        return target
    return head + str(Path(path).absolute())
