"""Figures of a SuperLink's last run for Prometheus, and a line about its health, over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedul_flwr.data.run_files.current_run import read_run
from fedul_flwr.deploy.address import Address
from fedul_flwr.errors import UserError


class RunFigures(Collector):
    """Collects the figures anew whenever Prometheus asks.

    Parameters
    ----------
    file : of :func:`fedul_flwr.data.run_files.current_run.note_run`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def collect(self) -> Iterator[Metric]:
        """Figures of the last run; none before the first one."""
        about, lines = read_run(self._file)
        if not about:
            return
        run, last = Path(about["directory"]).name, lines[-1] if lines else {}
        for name, text, value in (
            ("round", "Rounds that are complete.", last.get("round", 0)),
            ("rounds", "Rounds that the run is to have.", about["rounds"]),
            ("owners", "Owners in the last round.", last.get("clients", 0)),
            ("round_seconds", "Seconds of the last round.", last.get("seconds", 0.0)),
        ):
            gauge = GaugeMetricFamily(f"fedul_{name}", text, labels=["run"])
            gauge.add_metric([run], value)
            yield gauge
        state = GaugeMetricFamily("fedul_run_state", "The state is 1.", labels=["run", "state"])
        state.add_metric([run, about["state"]], 1)
        yield state
        failures = CounterMetricFamily("fedul_failures", "Failures of owners.", labels=["run"])
        failures.add_metric([run], sum(line["failures"] for line in lines))
        yield failures
        sizes = CounterMetricFamily("fedul_bytes", "Bytes of all owners.", labels=["run", "way"])
        for way in ("up", "down"):
            sizes.add_metric([run, way], sum(line[f"bytes_{way}"] for line in lines))
        yield sizes


def health(file: Path) -> str:
    """One line about the last run."""
    about, lines = read_run(file)
    if not about:
        return "No run yet.\n"
    last = lines[-1] if lines else {"round": 0, "clients": 0, "failures": 0}
    again = ""
    if about["state"] in ("died", "failed"):
        again = f" fedul-flwr run --federation … --resume {about['directory']} continues it."
    return (
        f"Run {Path(about['directory']).name}: {about['state']}, round {last['round']} of "
        f"{about['rounds']}, {last['clients']} owners, {last['failures']} failures.{again}\n"
    )


def serve_figures(address: Address, file: Path) -> WSGIServer:
    """Answer ``/metrics`` and ``/health`` at an address, in a thread, until the process ends.

    Raises
    ------
    UserError
        If nobody can listen there.
    """
    registry = CollectorRegistry()
    registry.register(RunFigures(file))
    figures = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] != "/health":
            return figures(environ, start)
        start("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [health(file).encode()]

    class Server(WSGIServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET

    class Handler(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing of each request."""

    try:
        server = make_server(address.host, address.port, app, Server, Handler)
    except OSError as error:
        raise UserError(
            f"--metrics {address}: {error.strerror}.", "address-wrong", option="--metrics"
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
