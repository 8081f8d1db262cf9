"""Flower's program ``flwr`` and the app's files for it: a run on a SuperLink, and how it ended.

``flwr run`` exits with 0 even for a run that fails. Here ``flwr list`` says how a run ended.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.base import nearest
from fedul_flwr.config.user_files import read_toml
from fedul_flwr.engine.shell import without_proxy
from fedul_flwr.engine.simulate import RunProgress, failure, stamp
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig

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
        patterns = project["tool"]["flwr"]["app"]["fab-include"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"The Flower app in {root} cannot be packed: {error}", "flower-failed"
        ) from error
    always = [root / name for name in ("pyproject.toml", ".gitignore")]
    files = [path for path in always if path.is_file()]
    files += [path for pattern in patterns for path in root.glob(pattern.lstrip("/"))]
    for path in files:
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FORCED_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables of notebooks, by which Flower would put colors into its answers."""


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


# A run among owners, with progress and a true exit code.

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 60.0
"""A SuperLink that has not answered for as long is taken for lost."""
_STOP_SECONDS = 20.0


def run_deployed(
    config: RunConfig, superlink: str, verbose: bool = False, *, named: bool = True
) -> Path | None:
    """Run on a SuperLink that is named in Flower's configuration, and wait for the end.

    Ctrl-C stops the run. Progress and results are read from ``config.output``, to which the
    SuperLink's machine writes: on another machine progress shows the start and the end alone.
    """
    from fedul_flwr.data.run_files.run import ERROR, SUMMARY
    from fedul_flwr.data.run_files.store import lock_directory, require_unlocked

    _refuse_unknown(superlink)
    output = Path(config.output)
    require_unlocked(output)
    if not named:
        output = lock_directory(output)
        config = config.model_copy(update={"output": str(output)})
    log, error = output / "flower.log", output / ERROR
    before, summary_before = stamp(error), stamp(output / SUMMARY)
    again = f"fedul-flwr run --federation {superlink} --resume"
    with (
        RunProgress(config, log_to_show=log if verbose else None) as progress,
        contextlib.closing(FlowerProgram(os.environ)) as flwr,
    ):
        run = start_run(flwr, app_directory(), config.to_flat(), superlink)
        try:
            why = _follow(run, log, progress.poll)
        except BaseException:
            run.stop()
            deadline = time.monotonic() + _STOP_SECONDS
            while not (ended := run.end()[1] is not None) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            how = "The run has ended" if ended else "The run was asked to stop, without answer"
            print(f"{how}; {again} {output} goes on with it.", file=sys.stderr)
            raise
    if why:
        raise failure(why, error, before, log, again)
    return output if stamp(output / SUMMARY) != summary_before else None


def _follow(run: FlowerRun, log_file: Path, on_poll: Callable[[], None]) -> str:
    """Append the log of a run to a file, and wait for the end; returns why it failed, if it has.

    ``on_poll`` is called from this thread about five times a second, if the log is there.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    start = log_file.stat().st_size if log_file.exists() else 0
    stream, answered = run.copy_log(log_file, start), time.monotonic()
    while True:
        stream.join(_POLL_SECONDS)
        on_poll()
        if stream.is_alive():
            answered = time.monotonic()
            continue
        # The log ends with the run, or the connection is broken.
        answers, why = run.end()
        if why is not None:
            on_poll()  # for lines written after the last poll
            return why
        if answers:
            answered = time.monotonic()
        elif time.monotonic() - answered > _SILENT_SECONDS:
            return (
                f"The SuperLink {run.superlink!r} has not answered for {_SILENT_SECONDS:.0f} s. "
                f"Once it runs, `flwr list {run.superlink}` says how the run ended."
            )
        time.sleep(1.0)
        stream = run.copy_log(log_file, start)


def _refuse_unknown(superlink: str) -> None:
    """Refuse a name that Flower's configuration lacks; Flower names its own defaults itself."""
    home = os.environ.get("FLWR_HOME")
    file = (Path(home) if home else Path.home() / ".flwr") / "config.toml"
    allowed = read_toml(file).get("superlink", {}) if file.is_file() else {}
    if allowed and superlink not in allowed:
        names = ", ".join(name for name, entry in allowed.items() if isinstance(entry, dict))
        raise UserError(
            f"--federation {superlink!r}: {file} has no such SuperLink; it has {names}"
            f"{nearest(superlink, allowed) or '.'}",
            "unknown-name",
            option="--federation",
        )
