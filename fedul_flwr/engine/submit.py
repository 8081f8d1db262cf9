"""Run the Flower app on our own SuperLink and report reliably whether it succeeded.

``flwr run`` exits with 0 even for a run that fails. Here ``flwr log`` copies the run's log to a
file until it ends, and ``flwr list`` says how: only ``finished:completed`` counts as success.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.engine.app_files import app_directory, copy_app
from fedul_flwr.engine.flower_program import FlowerProgram
from fedul_flwr.engine.simulate import refuse_cpus
from fedul_flwr.engine.superlink import LocalSuperLink
from fedul_flwr.errors import UserError

__all__ = ["LocalSuperLink", "RunOutcome", "app_directory", "run_app"]

_POLL_SECONDS = 0.2
_WATCH_SECONDS = 1.0
_START_SECONDS = 120.0
_GONE_SECONDS = 3.0
_GENERIC = "An error was encountered. Ending simulation."
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes
    ----------
    status
        Flower's status, such as ``finished:completed`` or ``finished:failed``; ``lost`` if a
        process died before Flower set one.
    details
        The reason of a failure, empty on success.
    """

    status: str
    details: str

    @property
    def succeeded(self) -> bool:
        """Whether the run completed."""
        return self.status == "finished:completed"


def run_app(
    superlink: LocalSuperLink,
    app_dir: Path,
    overrides: Mapping[str, bool | int | float | str],
    *,
    num_supernodes: int,
    client_cpus: float = 1.0,
    client_gpus: float = 0.0,
    on_poll: Callable[[], None],
    log_file: Path,
) -> RunOutcome:
    """Run a Flower app and wait for its end.

    Parameters
    ----------
    superlink
        A started SuperLink; it can run several apps, one after the other.
    app_dir
        Directory with the app's ``pyproject.toml``.
    overrides
        Run config; each key must exist in the app's ``[tool.flwr.app.config]``.
    num_supernodes
        Number of simulated clients.
    client_cpus, client_gpus
        Resources of each concurrent client. Flower accepts whole CPUs only.
    on_poll
        Called from this thread about five times a second during the run.
    log_file
        The run's log is appended here.

    Returns
    -------
    RunOutcome
        How the run ended. If the SuperLink or the simulation dies, it is a failure with a reason.

    Raises
    ------
    UserError
        If Flower refuses the app before it starts.
    """
    run_id = _submit(superlink.flwr, app_dir, overrides, num_supernodes, client_cpus, client_gpus)
    try:
        return _follow(superlink, run_id, on_poll, log_file)
    except BaseException:
        if superlink.keep:  # otherwise the SuperLink ends, and the run with it
            with contextlib.suppress(UserError):
                superlink.flwr.ask("stop", run_id)
        raise


def _submit(
    flwr: FlowerProgram,
    app_dir: Path,
    overrides: Mapping[str, bool | int | float | str],
    num_supernodes: int,
    client_cpus: float,
    client_gpus: float,
) -> str:
    """Start the run and return its id."""
    refuse_cpus(client_cpus)
    federation = (
        f"num-supernodes={num_supernodes} client-resources-num-cpus={int(client_cpus)} "
        f'client-resources-num-gpus={float(client_gpus)} backend="ray"'
    )
    with tempfile.TemporaryDirectory(prefix="fedul-app-") as place:
        app, settings = Path(place) / "app", Path(place) / "settings.toml"
        copy_app(app_dir, app)
        settings.write_text(_toml(overrides), encoding="utf-8")
        options = ["--run-config", str(settings), "--federation-config", federation]
        try:
            answer = flwr.ask("run", str(app), *options)
        except UserError as error:
            raise UserError(f"Flower refused the run: {error}") from None
    return str(answer["run-id"])


def _toml(settings: Mapping[str, bool | int | float | str]) -> str:
    """Settings as the content of a TOML file."""

    def text(value: bool | int | float | str) -> str:
        if isinstance(value, bool | str):  # JSON escapes as TOML does, but for one character
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return repr(value)

    return "".join(f"{key} = {text(value)}\n" for key, value in settings.items())


def _follow(
    superlink: LocalSuperLink, run_id: str, on_poll: Callable[[], None], log_file: Path
) -> RunOutcome:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_start = log_file.stat().st_size if log_file.exists() else 0
    stream = _start_copy(superlink.flwr, run_id, log_file, log_start)
    watch = _Watch(superlink, run_id)
    while True:
        stream.join(_POLL_SECONDS)
        on_poll()
        if (code := superlink.exit_code()) is not None:
            return RunOutcome("lost", f"Flower's SuperLink died with exit code {code}.")
        if not stream.is_alive():  # the log ends with the run
            outcome = _verdict(superlink.flwr, run_id)
            if outcome is not None:
                on_poll()  # for lines written after the last poll
                return _explained(outcome, _read(log_file, log_start))
        reason = watch.reason()
        if reason:
            # It may have finished normally just before this check.
            stream.join(1.0)
            on_poll()
            return _verdict(superlink.flwr, run_id) or RunOutcome("lost", reason)
        if not stream.is_alive():  # the connection broke
            stream = _start_copy(superlink.flwr, run_id, log_file, log_start)


class _Watch:
    """Detects at once that the simulation process died; Flower takes a minute to notice."""

    def __init__(self, superlink: LocalSuperLink, run_id: str) -> None:
        self._superlink = superlink
        self._run_id = run_id
        self._start = self._last_alive = time.monotonic()
        self._next = 0.0

    def reason(self) -> str:
        """Return the reason why the run cannot continue, or an empty string."""
        now = time.monotonic()
        if now < self._next:
            return ""
        self._next = now + _WATCH_SECONDS
        if self._superlink.simulation() is not None:
            self._last_alive = now
            return ""
        if _status(self._superlink.flwr, self._run_id)[0] == "pending":  # not started yet
            self._last_alive = now
            if now - self._start < _START_SECONDS:
                return ""
            return f"Flower did not start the simulation within {_START_SECONDS:.0f} s."
        if now - self._last_alive < _GONE_SECONDS:
            return ""
        return (
            "Flower's simulation process ended without a verdict; "
            "it was killed, perhaps for want of memory."
        )


def _start_copy(flwr: FlowerProgram, run_id: str, log_file: Path, start: int) -> threading.Thread:
    """Copy the run's log into ``log_file`` from position ``start`` on, in a thread."""

    def copy() -> None:
        with contextlib.suppress(UserError), contextlib.ExitStack() as stack:
            out = None
            # The run's end is told by the end of these lines, also where they cannot be written.
            with contextlib.suppress(OSError):
                log_file.touch()
                out = stack.enter_context(log_file.open("r+b", buffering=0))
                out.seek(start)
            for line in flwr.lines("log", run_id, "--stream"):
                with contextlib.suppress(OSError):
                    if out is not None:
                        out.write(_COLOURS.sub("", line).encode("utf-8", "replace"))

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _status(flwr: FlowerProgram, run_id: str) -> tuple[str, str]:
    """The run's status, such as ``finished:failed``, and its details; empty without an answer."""
    try:
        [run] = flwr.ask("list", "--run-id", run_id)["runs"]
    except UserError:
        return "", ""
    return run["status"], run["status-details"]


def _verdict(flwr: FlowerProgram, run_id: str) -> RunOutcome | None:
    """Outcome of a finished run; None while it is unfinished, or without an answer."""
    status, details = _status(flwr, run_id)
    if not status.startswith("finished:"):
        return None
    if status == "finished:completed":
        return RunOutcome(status, "")
    if details == "N/A":
        return RunOutcome(status, f"Flower reports {status} without a reason.")
    return RunOutcome(status, details.removeprefix("Simulation failed with exception: ").strip())


def _explained(outcome: RunOutcome, log: str) -> RunOutcome:
    """Add the exception from the log that Flower's details leave out."""
    if outcome.succeeded:
        return outcome
    raised = [line.strip() for line in _RAISED.findall(log) if _GENERIC not in line]
    if outcome.details == _GENERIC:
        found = raised[:1]  # the first exception of a chain is the cause
    else:
        found = [line for line in raised if line.endswith(": " + outcome.details.split("\n")[0])]
    return RunOutcome(outcome.status, found[0]) if found else outcome


def _read(path: Path, start: int = 0) -> str:
    try:
        return path.read_bytes()[start:].decode("utf-8", errors="replace")
    except OSError:
        return ""
