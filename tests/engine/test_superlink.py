"""What a SuperLink's processes are told, and clusters of Ray that do not answer."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from pathlib import Path

import pytest

from fedul_flwr.config.references import USER_PATH
from fedul_flwr.engine import flower_simulation
from fedul_flwr.engine.flower_simulation import refuse_silent_cluster
from fedul_flwr.engine.superlink import superlink_environment, without_proxy
from tests.support.refusals import refuses


def test_this_machine_is_reached_without_a_proxy() -> None:
    given = {"http_proxy": "http://p:1", "NO_PROXY": "a.example", "no_grpc_proxy": "b.example"}
    assert without_proxy(given) == {
        "http_proxy": "http://p:1",
        "NO_PROXY": "a.example,127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "no_grpc_proxy": "b.example,127.0.0.1,localhost",
    }


def test_given_relative_folders_of_modules_then_the_superlinks_programs_search_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "/lib"]))
    monkeypatch.delenv(USER_PATH, raising=False)
    found = superlink_environment(tmp_path / "home", "")
    assert found["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "src"), "/lib"])
    assert found[USER_PATH] == str(tmp_path)


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


@pytest.mark.parametrize(
    "address",
    [
        "head",
        "head:",
        "head:99999",
    ],
)
def test_given_another_form_then_the_form_is_named(address: str) -> None:
    with refuses("address-wrong", option="--ray-address"):
        refuse_silent_cluster(address)
