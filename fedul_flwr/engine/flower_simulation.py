"""Run the Flower app in Flower's simulation, on Ray, and report reliably whether it succeeded."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fedul_flwr.data.cores import refuse_cpus
from fedul_flwr.engine.flower_run import FlowerRun, RunOutcome, app_directory, follow, start_run
from fedul_flwr.engine.superlink import LocalSuperLink
from fedul_flwr.errors import UserError

__all__ = ["LocalSuperLink", "RunOutcome", "app_directory", "refuse_silent_cluster", "run_app"]

_PATIENCE = 5.0
"""Seconds that a cluster has to answer."""
_WATCH_SECONDS = 1.0
_START_SECONDS = 120.0
_GONE_SECONDS = 3.0


def run_app(
    superlink: LocalSuperLink,
    app_dir: Path,
    overrides: Mapping[str, bool | int | float | str],
    *,
    clients: tuple[int, float, float],
    on_poll: Callable[[], None],
    log_file: Path,
) -> RunOutcome:
    """Run a Flower app and wait for its end.

    Parameters
    ----------
    superlink : a started SuperLink; it can run several apps, one after the other.
    app_dir : directory with the app's ``pyproject.toml``.
    overrides : run config; each key must exist in the app's ``[tool.flwr.app.config]``.
    clients : number of simulated clients, and processors and GPUs of each concurrent one. Flower
        accepts whole processors only.
    on_poll : called from this thread about five times a second during the run.
    log_file : the run's log is appended here.

    Returns
    -------
    RunOutcome
        How the run ended. If the SuperLink or the simulation dies, it is a failure with a reason.
    """
    num_supernodes, client_cpus, client_gpus = clients
    if not superlink.ray_address:  # a cluster may have larger machines
        refuse_cpus(client_cpus)
    federation = (
        f"num-supernodes={num_supernodes} client-resources-num-cpus={int(client_cpus)} "
        f'client-resources-num-gpus={float(client_gpus)} backend="ray"'
    )
    run = start_run(superlink.flwr, app_dir, overrides, ["--federation-config", federation])
    try:
        return follow(run, log_file, on_poll, _Watch(superlink, run).reason)
    except BaseException:
        if superlink.keep:  # otherwise the SuperLink ends, and the run with it
            run.stop()
        raise


class _Watch:
    """Detects at once that a process died; Flower takes a minute to notice."""

    def __init__(self, superlink: LocalSuperLink, run: FlowerRun) -> None:
        self._superlink = superlink
        self._run = run
        self._start = self._last_alive = time.monotonic()
        self._next = 0.0

    def reason(self, _: bool) -> str:
        """Return the reason why the run cannot continue, or an empty string."""
        if (code := self._superlink.exit_code()) is not None:
            return f"Flower's SuperLink died with exit code {code}."
        now = time.monotonic()
        if now < self._next:
            return ""
        self._next = now + _WATCH_SECONDS
        if self._superlink.simulation() is not None:
            self._last_alive = now
        if now - self._last_alive < _GONE_SECONDS:
            return ""
        is_waiting = self._run.status()[0] == "pending"
        # To ask takes seconds, in which the simulation may have started.
        if is_waiting or self._superlink.simulation() is not None:
            self._last_alive = time.monotonic()
            if self._last_alive - self._start < _START_SECONDS or not is_waiting:
                return ""
            return f"Flower did not start the simulation within {_START_SECONDS:.0f} s."
        return (
            "Flower's simulation process ended without a result; "
            "it was killed, perhaps for want of memory."
        )


def refuse_silent_cluster(address: str) -> None:
    """Refuse a cluster that does not answer; ``auto`` is left to Ray, which looks on this machine.

    Parameters
    ----------
    address : ``host:port`` of the cluster's head, or ``auto``.
    """
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
