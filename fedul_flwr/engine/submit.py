"""Run the Flower app on a SuperLink of our own and report a verdict that can be trusted.

``flwr run`` exits with 0 for a run that fails. Here the run is submitted through Flower's own
client library, its log goes to a file, and only ``finished:completed`` counts as success.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.engine.app_files import app_directory, app_files
from fedul_flwr.engine.superlink import LocalSuperLink
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from flwr.proto.run_pb2 import Run, RunStatus
    from flwr.supercore.control import ControlHttpClient

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
        Flower's status, such as ``finished:completed`` or ``finished:failed``; ``lost`` when a
        process died before there was one.
    details
        The reason of a failure, empty on success.
    """

    status: str
    details: str

    @property
    def succeeded(self) -> bool:
        """Tell whether the run did all it was asked to."""
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
        What each client that runs at the same time takes. Flower takes whole CPUs only.
    on_poll
        Called about five times a second from this thread while the run goes on.
    log_file
        The run's log is appended here.

    Returns
    -------
    RunOutcome
        The verdict. A SuperLink or simulation process that dies is a failure with a reason.

    Raises
    ------
    UserError
        If the app is refused before it starts.
    """
    client = _client(superlink.address)
    try:
        run_id = _submit(client, app_dir, overrides, num_supernodes, client_cpus, client_gpus)
        try:
            return _follow(superlink, client, run_id, on_poll, log_file)
        except BaseException:
            if superlink.keep:  # otherwise the SuperLink goes, and the run with it
                _stop_run(client, run_id)
            raise
    finally:
        client.close()


def _client(address: str) -> ControlHttpClient:
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    with _no_proxy():
        return ControlHttpClient.from_server_address(
            server_address=address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )


def _submit(
    client: ControlHttpClient,
    app_dir: Path,
    overrides: Mapping[str, bool | int | float | str],
    num_supernodes: int,
    client_cpus: float,
    client_gpus: float,
) -> int:
    import httpx
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.federation_config_pb2 import SimulationConfig
    from flwr.supercore.fab import Fab

    if client_cpus != int(client_cpus) or client_cpus < 1:
        raise UserError(f"client CPUs is {client_cpus}; Flower takes whole CPUs, at least 1.")
    if client_cpus > (available := os.cpu_count() or 1):
        raise UserError(f"client CPUs is {client_cpus}; this machine has {available}.")
    try:
        content, _ = build_fab_from_files(dict(app_files(app_dir)))
    except Exception as error:  # Flower raises several kinds, all about the app's files
        raise UserError(f"The Flower app in {app_dir} cannot be packed: {error}") from error
    request = StartRunRequest(
        fab=fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {})),
        override_config=user_config_to_proto(dict(overrides)),
        override_federation_config=SimulationConfig(
            num_supernodes=num_supernodes,
            client_resources_num_cpus=int(client_cpus),
            client_resources_num_gpus=client_gpus,
            backend="ray",
        ),
    )
    try:
        response = client.StartRun(request)
    except httpx.HTTPStatusError as error:
        raise UserError(f"Flower refused the run: {_message(error.response)}") from error
    except httpx.HTTPError as error:
        raise UserError(f"Flower's SuperLink did not take the run: {error}") from error
    if not response.HasField("run_id"):
        raise UserError("Flower refused the run without a reason; is the app larger than 10 MB?")
    return int(response.run_id)


def _follow(
    superlink: LocalSuperLink,
    client: ControlHttpClient,
    run_id: int,
    on_poll: Callable[[], None],
    log_file: Path,
) -> RunOutcome:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_start = log_file.stat().st_size if log_file.exists() else 0
    # The log stream ends with the run, so waiting for its end costs nothing.
    stream = threading.Thread(
        target=_copy_log, args=(superlink.address, run_id, log_file), daemon=True
    )
    stream.start()
    watch = _Watch(superlink, client, run_id)
    while True:
        stream.join(_POLL_SECONDS)
        on_poll()
        if (code := superlink.exit_code()) is not None:
            return RunOutcome("lost", f"Flower's SuperLink died with exit code {code}.")
        if not stream.is_alive():
            outcome = _verdict(client, run_id)
            if outcome is not None:
                on_poll()  # what was written between the last poll and the end
                return _explained(outcome, _read(log_file, log_start))
        reason = watch.reason()
        if reason:
            # It may have reported and ended in order just before we looked.
            stream.join(1.0)
            on_poll()
            return _verdict(client, run_id) or RunOutcome("lost", reason)


class _Watch:
    """Notices that the simulation process is gone, of which Flower learns after a minute only."""

    def __init__(self, superlink: LocalSuperLink, client: ControlHttpClient, run_id: int) -> None:
        self._superlink = superlink
        self._client = client
        self._run_id = run_id
        self._start = self._last_alive = time.monotonic()
        self._next = 0.0

    def reason(self) -> str:
        """Return why the run cannot go on, or nothing."""
        now = time.monotonic()
        if now < self._next:
            return ""
        self._next = now + _WATCH_SECONDS
        if self._superlink.simulation() is not None:
            self._last_alive = now
            return ""
        status = _status(self._client, self._run_id)
        if status is not None and status.status == "pending":  # no process was started for it yet
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


def _copy_log(address: str, run_id: int, log_file: Path) -> None:
    from flwr.proto.control_pb2 import StreamLogsRequest

    after = 0.0
    with (
        log_file.open("a", encoding="utf-8") as out,
        contextlib.closing(_client(address)) as client,
    ):
        for _ in range(3):  # a stream that breaks off is taken up where it stopped
            with contextlib.suppress(Exception):
                request = StreamLogsRequest(run_id=run_id, after_timestamp=after)
                for part in client.StreamLogs(request):
                    out.write(_COLOURS.sub("", part.log_output))
                    out.flush()
                    after = max(after, part.latest_timestamp)
                return


def _status(client: ControlHttpClient, run_id: int) -> RunStatus | None:
    """Ask for the status; None if nobody answers."""
    import httpx
    from flwr.proto.control_pb2 import ListRunsRequest

    try:
        run: Run = client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id]
    except httpx.HTTPError:
        return None
    return run.status


def _verdict(client: ControlHttpClient, run_id: int) -> RunOutcome | None:
    """Outcome of a finished run; None while it is unfinished or nobody answers."""
    status = _status(client, run_id)
    if status is None or status.status != "finished":
        return None
    text = f"finished:{status.sub_status}"
    if status.sub_status == "completed":
        return RunOutcome(text, "")
    details = status.details.removeprefix("Simulation failed with exception: ").strip()
    return RunOutcome(text, details or f"Flower reports {text} without a reason.")


def _explained(outcome: RunOutcome, log: str) -> RunOutcome:
    """Name the exception that Flower's details leave out or replace by a sentence of its own."""
    if outcome.succeeded:
        return outcome
    raised = [line.strip() for line in _RAISED.findall(log) if _GENERIC not in line]
    if outcome.details == _GENERIC:
        found = raised[:1]  # the first of a chain is the cause
    else:
        found = [line for line in raised if line.endswith(": " + outcome.details.split("\n")[0])]
    return RunOutcome(outcome.status, found[0]) if found else outcome


def _stop_run(client: ControlHttpClient, run_id: int) -> None:
    from flwr.proto.control_pb2 import StopRunRequest

    with contextlib.suppress(Exception):
        client.StopRun(StopRunRequest(run_id=run_id))


def _message(response: object) -> str:
    """Take the sentence out of an error reply."""
    from flwr.supercore.error import FlowerError

    text = str(getattr(response, "text", response))
    with contextlib.suppress(Exception):
        if error := FlowerError.from_json(text):
            return " ".join(filter(None, [error.message, error.public_details]))
    return text


@contextlib.contextmanager
def _no_proxy() -> Iterator[None]:
    """Keep the user's proxy settings away from a client that talks to this machine."""
    old = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "*"
    try:
        yield
    finally:
        if old is None:
            del os.environ["NO_PROXY"]
        else:
            os.environ["NO_PROXY"] = old


def _read(path: Path, start: int = 0) -> str:
    try:
        return path.read_bytes()[start:].decode("utf-8", errors="replace")
    except OSError:
        return ""
