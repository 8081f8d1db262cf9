"""Figures of a SuperLink's last run for Prometheus, and a line about it, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

from fedul_flwr.data.run_files.store import noted_run, run_in_words
from fedul_flwr.deploy.certificates import Address
from fedul_flwr.errors import UserError, require

require("prometheus", "--metrics", "prometheus_client", option="--metrics")
from prometheus_client import CollectorRegistry, start_http_server  # noqa: E402
from prometheus_client.core import GaugeMetricFamily  # noqa: E402
from prometheus_client.registry import Collector  # noqa: E402

Lines = Sequence[Mapping[str, Any]]
FIGURES: Mapping[str, tuple[str, Callable[[Mapping[str, Any], Lines], float]]] = {
    "training": ("Whether the last run trains.", lambda run, _: run.get("state") == "training"),
    "rounds": ("Rounds that it is to have.", lambda run, _: run.get("rounds", 0)),
    "round": ("Rounds that are complete.", lambda _, lines: len(lines)),
    "owners": ("Owners in the last one.", lambda _, lines: lines[-1]["clients"] if lines else 0),
    "round_seconds": ("Seconds of it.", lambda _, lines: lines[-1]["seconds"] if lines else 0),
    "failures": ("Failures in all.", lambda _, lines: sum(line["failures"] for line in lines)),
    "bytes_up": ("Bytes from owners.", lambda _, lines: sum(line["bytes_up"] for line in lines)),
    "bytes_down": ("Bytes to them.", lambda _, lines: sum(line["bytes_down"] for line in lines)),
}
"""Text and value of each, from what :func:`noted_run` returns."""


class _Figures(Collector):
    """All figures of one reading of the run's file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def collect(self) -> Iterator[GaugeMetricFamily]:
        run, lines = noted_run(self._file)
        for name, (text, value) in FIGURES.items():
            yield GaugeMetricFamily(f"fedul_{name}", text, value=float(value(run, lines)))


def serve_figures(address: Address, file: Path) -> WSGIServer:
    """Answer ``/metrics`` and ``/health`` at an address, in a thread, until the process ends."""
    registry = CollectorRegistry()
    registry.register(_Figures(file))
    try:
        server, _ = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise UserError(
            f"--metrics {address}: {error.strerror}.", "address-wrong", option="--metrics"
        ) from None
    figures: Any = server.get_app()

    def app(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] != "/health":
            return figures(environ, start)
        start("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [run_in_words(file).encode()]

    server.set_app(app)
    return server
