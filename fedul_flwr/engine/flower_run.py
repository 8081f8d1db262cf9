"""Flower's program ``flwr`` and the app's files for it: a run on a SuperLink, and how it ended.

``flwr run`` exits with 0 even for a run that fails. Here ``flwr list`` says how a run ended.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError

METHODS = ("strategies", "client_apps", "baselines")
"""Folders of methods: in a wheel inside ``fedul_flwr``, in a checkout and in the app beside it."""


def app_directory() -> Path:
    """Return the directory of this Flower app."""
    package = Path(__file__).resolve().parents[1]
    project = package.parent / "pyproject.toml"
    if project.is_file() and "[tool.flwr.app]" in project.read_text(encoding="utf-8"):
        return package.parent
    if not (package / "app_pyproject.toml").is_file():
        raise UserError(
            f"The Flower app's pyproject.toml is missing beside {package}; install "
            "fedul-flwr anew.",
            "package-missing",
        )
    app = Path(tempfile.mkdtemp(prefix="fedul-app-"))
    atexit.register(shutil.rmtree, app, ignore_errors=True)
    for name in METHODS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package / name, app / name, ignore=ignore)
    others = ("__pycache__", "app_*.toml", "app_*.md", "paper_tables")
    ignore = shutil.ignore_patterns(*others, *METHODS)
    shutil.copytree(package, app / package.name, ignore=ignore)
    shutil.copyfile(package / "app_pyproject.toml", app / "pyproject.toml")
    for name, source in (("README.md", "app_README.md"), ("LICENSE", "app_LICENSE.md")):
        shutil.copyfile(package / source, app / name)
    return app


def copy_app(root: Path, target: Path) -> None:
    """Copy an app's files, and no others: ``flwr run`` would search virtual environments, too."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"The Flower app in {root} cannot be packed: {error}", "flower-failed"
        ) from error
    patterns = project.get("tool", {}).get("flwr", {}).get("app", {}).get("fab-include")
    if patterns is None:
        files = list(app_files(root))
    else:
        always = [root / name for name in ("pyproject.toml", ".gitignore")]
        files = [path for path in always if path.is_file()]
        files += [path for pattern in patterns for path in root.glob(pattern.lstrip("/"))]
    for path in files:
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def app_files(root: Path) -> Iterator[Path]:
    """Files that may belong to the app in ``root``, without virtual environments."""
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = [
            name
            for name in names
            if not name.startswith(".")
            and name != "__pycache__"
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            path = here / name
            if not path.is_symlink():
                yield path


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FORCED_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables of notebooks, by which Flower would put colors into its answers."""


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
        env[key] = ",".join(filter(None, [env.get(key), "127.0.0.1", "localhost"]))
    return env


class FlowerProgram:
    """Commands of Flower's program ``flwr``."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = without_proxy(environment)
        for key in _FORCED_COLORS:
            self._environment.pop(key, None)
        self._environment |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        self._environment |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        self._running: set[subprocess.Popen[str]] = set()

    def lines(self, *arguments: str) -> Iterator[str]:
        """Lines that ``flwr ARGUMENTS`` writes to stdout, until it ends."""
        with self._started(arguments, subprocess.DEVNULL) as process:
            assert process.stdout is not None
            yield from process.stdout

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The answer of ``flwr ARGUMENTS --format json``."""
        with self._started([*arguments, "--format", "json"], subprocess.PIPE) as process:
            text, errors = process.communicate()
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError:
            tail = "\n".join(errors.strip().splitlines()[-5:])
            raise UserError(
                f"`flwr {arguments[0]}` gave no answer.\n{tail}", "flower-failed"
            ) from None
        if not answer.get("success"):
            # Flower puts all that it has written before the reason, and an empty line between.
            reason = str(answer.get("error-message", text)).strip().rpartition("\n\n")[2]
            raise UserError(reason.strip(), "flower-failed")
        return answer

    def close(self) -> None:
        """End the commands that still run. Harmless if repeated."""
        for process in list(self._running):
            process.terminate()

    @contextlib.contextmanager
    def _started(self, arguments: Sequence[str], errors: int) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [str(scripts_directory() / "flwr"), *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C must not end commands that stop a run
        )
        self._running.add(process)
        try:
            with process:
                try:
                    yield process
                except BaseException:
                    process.terminate()
                    raise
        finally:
            self._running.discard(process)


def scripts_directory() -> Path:
    """Directory of Flower's programs, those of this interpreter."""
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
        "install them with: pip install 'flwr[simulation]'",
        "package-missing",
    )


def start_run(
    flwr: FlowerProgram,
    app_dir: Path,
    overrides: Mapping[str, bool | int | float | str],
    superlink: str,
) -> FlowerRun:
    """Start a run of the app in ``app_dir``."""
    with tempfile.TemporaryDirectory(prefix="fedul-app-") as folder:
        app, settings = Path(folder) / "app", Path(folder) / "settings.toml"
        copy_app(app_dir, app)
        settings.write_text(as_toml(overrides), encoding="utf-8")
        try:
            answer = flwr.ask("run", str(app), superlink, "--run-config", str(settings))
        except UserError as error:
            raise UserError(f"Flower refused the run: {error}", "flower-failed") from None
    return FlowerRun(flwr, str(answer["run-id"]), superlink)


@dataclass(frozen=True)
class FlowerRun:
    """A run that was started: Flower's program, its number of the run, and the SuperLink's name."""

    flwr: FlowerProgram
    run_id: str
    superlink: str

    def stop(self) -> None:
        """End the run; harmless if it has ended, or nobody answers."""
        with contextlib.suppress(UserError):
            self.flwr.ask("stop", self.run_id, self.superlink)

    def copy_log(self, log_file: Path, start: int) -> threading.Thread:
        """Copy the log into ``log_file`` from position ``start`` on, in a thread.

        The thread ends with the run, or when the connection breaks.
        """

        def copy() -> None:
            with contextlib.suppress(UserError), contextlib.ExitStack() as stack:
                out = None
                # The run's end is told by the end of these lines, also where they cannot be
                # written.
                with contextlib.suppress(OSError):
                    log_file.touch()
                    out = stack.enter_context(log_file.open("r+b", buffering=0))
                    out.seek(start)
                for line in self.flwr.lines("log", self.run_id, self.superlink, "--stream"):
                    with contextlib.suppress(OSError):
                        if out is not None:
                            out.write(_COLORS.sub("", line).encode("utf-8", "replace"))

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        return thread

    def end(self) -> tuple[bool, str | None]:
        """Whether the SuperLink answers; why the run failed, empty if it completed, None before."""
        try:
            [run] = self.flwr.ask("list", self.superlink, "--run-id", self.run_id)["runs"]
        except UserError:
            return False, None
        status, details = run["status"], run["status-details"].strip()
        if status == "finished:completed":
            return True, ""
        if details in ("", "N/A"):
            details = f"Flower reports {status} without a reason."
        return True, details if status.startswith("finished:") else None


def as_toml(settings: Mapping[str, bool | int | float | str]) -> str:
    """Settings as the content of a TOML file."""

    def text(value: bool | int | float | str) -> str:
        if isinstance(value, bool | str):  # JSON escapes as TOML does, but for one character
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return repr(value)

    return "".join(f"{key} = {text(value)}\n" for key, value in settings.items())


def stamp(path: Path) -> tuple[int, int] | None:
    """Time of change and size of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def failure(
    why: str, error: Path, before: tuple[int, int] | None, log: Path, command: str
) -> UserError:
    """The error that tells why a run failed."""
    from fedul_flwr.config.run_config import LAST_MODEL

    reason = UserError(why, "run-failed")
    if (error.parent / LAST_MODEL).exists():  # a server app that was killed says nothing itself
        again = f"{command} {error.parent} continues after the last complete round."
        reason = UserError(f"{why}\n{again}", "run-failed")
    if stamp(error) not in (None, before):
        text = error.read_text(encoding="utf-8", errors="replace").strip()
        reason = UserError.from_text(text) if text else reason
    return UserError(f"{reason}\nThe log of the run is {log}.", reason.code)
