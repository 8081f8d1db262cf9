"""A Ray cluster that does not answer is refused within seconds."""

import http.server
import socket
import threading

import pytest

from fedul_flwr.engine import flower_simulation
from fedul_flwr.engine.flower_simulation import refuse_silent_cluster
from tests.support.refusals import refuses


def test_given_a_port_without_a_program_then_it_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with refuses("ray-not-reachable", option="--ray-address"):
        refuse_silent_cluster(f"127.0.0.1:{port}")


def test_given_another_program_then_it_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_simulation, "_PATIENCE", 1.0)
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with refuses("ray-not-reachable", option="--ray-address"):
            refuse_silent_cluster(f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def test_given_a_server_of_grpc_then_it_is_taken() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc  # type: ignore[import-untyped]

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        refuse_silent_cluster(f"127.0.0.1:{port}")
    finally:
        server.stop(None)


@pytest.mark.parametrize("address", ["head", "head:99999", ":6379"])
def test_given_another_form_then_the_form_is_named(address: str) -> None:
    with refuses("address-wrong", option="--ray-address"):
        refuse_silent_cluster(address)
