"""A local server answers the user who started it, and nobody else."""

import ast
import asyncio
import contextlib
import http.client
import inspect
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from flwr.superlink.cli.flower_superlink import _run_superlink_http_api

from fedul_flwr.engine.superlink_guard import (
    KERNEL_TABLES,
    Address,
    SameUserOnly,
    Scope,
    belongs_to_user,
    run_superlink,
)
from tests.support.deployment import free_ports
from tests.support.other_user import as_other_user
from tests.support.patience import quiet_seconds

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def ask(address: Address, path: str = "/", headers: Mapping[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.request("POST", path, headers=dict(headers or {}))
        return connection.getresponse().status
    finally:
        connection.close()


async def hello(scope: Scope, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    """Address of a guarded server."""
    app, options = SameUserOnly(hello, ["/open"]), {"log_level": "error", "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(app, host=request.param, port=0, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in quiet_seconds(20):
        if server.started:
            break
        time.sleep(0.01)
    yield request.param, int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join()


def test_given_the_same_user_when_it_asks_then_it_is_answered(address: Address) -> None:
    assert ask(address) == 200


@needs_root
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads
def test_given_another_user_when_it_asks_then_open_paths_answer(address: Address) -> None:
    assert as_other_user(lambda: ask(address)) == 403
    assert as_other_user(lambda: ask(address, "/open/door")) == 200
    assert as_other_user(lambda: ask(address, "/open/../other")) == 403
    assert as_other_user(lambda: ask(address, "//open")) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-length": "0"}, 200),
        ({"content-length": str((32 << 20) + 1)}, 413),
        ({"transfer-encoding": "chunked"}, 413),
    ],
)
def test_given_a_body_that_is_large_or_of_unknown_length_when_sent_to_an_open_path_then_refused(
    address: Address, headers: dict[str, str], status: int
) -> None:
    assert ask(address, "/open/door", headers) == status


@needs_root
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_given_another_user_when_it_submits_a_run_then_the_superlink_refuses() -> None:
    [port] = free_ports(1)
    address, path = ("127.0.0.1", port), "/v1/control/start-run"
    program = "from fedul_flwr.engine.superlink_guard import run_superlink; run_superlink()"
    options = ["--insecure", "--isolation", "process", "--host", address[0], "--port", str(port)]
    with subprocess.Popen([sys.executable, "-c", program, *options]) as superlink:
        for _ in quiet_seconds(60):
            with contextlib.suppress(OSError), socket.create_connection(address):
                break
        assert as_other_user(lambda: ask(address, path)) == 403
        with socket.create_connection(address) as ours:
            # A proxy's headers would put another address in place of the true one.
            claim = {"X-Forwarded-For": f"{address[0]}:{ours.getsockname()[1]}"}
            assert as_other_user(lambda: ask(address, path, claim)) == 403
        assert ask(address, path) not in (403, 404)  # it exists, and we are let through
        superlink.terminate()


def options_of_uvicorn(function: Callable[..., object]) -> set[str]:
    """Names of what a function passes to ``uvicorn.run``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    [call] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "uvicorn.run"
    ]
    return {str(option.arg) for option in call.keywords}


def test_given_flowers_own_program_then_the_guarded_one_serves_with_the_same_options() -> None:
    """A release of Flower may add one; ``reload`` is off without it, too."""
    flowers = options_of_uvicorn(_run_superlink_http_api)
    assert options_of_uvicorn(run_superlink) - {"proxy_headers"} == flowers - {"reload"}


@pytest.mark.parametrize("has_tables", [True, False])
def test_our_own_connection_is_ours(monkeypatch: pytest.MonkeyPatch, has_tables: bool) -> None:
    if not has_tables:
        monkeypatch.setitem(KERNEL_TABLES, socket.AF_INET, Path("/no/such/table"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            ends = client.getsockname(), client.getpeername()
            assert belongs_to_user(*ends)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()
        assert not belongs_to_user(nobody, ends[1])


def test_given_a_request_without_addresses_when_it_comes_then_it_is_refused() -> None:
    scope = {"type": "http", "path": "/", "client": None, "server": ("127.0.0.1", 2)}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    asyncio.run(SameUserOnly(hello)(scope, receive, send))
    assert sent[0]["status"] == 403
