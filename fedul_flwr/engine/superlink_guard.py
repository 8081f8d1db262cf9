"""Flower's SuperLink with a guard: it answers only processes of the user who started it.

Every user of a machine can connect to its loopback ports. A SuperLink runs the programs that it is
sent, and it has no accounts, so it must not answer other users. No option of Flower's does this.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import psutil

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Address = tuple[str, int]

KERNEL_TABLES = {
    socket.AF_INET: Path("/proc/net/tcp"),
    socket.AF_INET6: Path("/proc/net/tcp6"),
}
"""Linux's tables of connections, with the user that each one belongs to."""
REFUSED = b"This server answers only the user who started it.\n"
LARGEST_BODY = 32 << 20
"""Most bytes of a request from others: Flower reads all of it before it checks who has signed it.
SuperNodes send arrays in pieces of 5 MiB."""
TOO_LARGE = b"A request needs a content-length of at most 32 MiB.\n"


class SameUserOnly:
    """ASGI application that answers other users' requests with 403."""

    def __init__(self, app: App, open_paths: Sequence[str] = ()) -> None:
        self._app = app
        self._open_paths = tuple(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        # Everything else, such as the start of the server, comes from the server itself.
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._is_open(scope):
            if is_small(scope):
                await self._app(scope, receive, send)
            else:
                await _refuse(send, 413, TOO_LARGE)
        elif self._is_own(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _refuse(send, 403, REFUSED)

    def _is_open(self, scope: Scope) -> bool:
        path = str(scope["path"])
        return path.startswith(self._open_paths) and "/.." not in path

    @staticmethod
    def _is_own(scope: Scope) -> bool:
        client, server = scope.get("client"), scope.get("server")
        if client is None or server is None or server[1] is None:
            return False
        return belongs_to_user((client[0], client[1]), (server[0], server[1]))


def is_small(scope: Scope) -> bool:
    """Whether a request says that its body has at most :data:`LARGEST_BODY` bytes.

    The server reads no more than that. A body of unknown length is refused: SuperNodes send none.
    """
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return (
        b"transfer-encoding" not in headers
        and len(length) < 20
        and length.isdigit()
        and int(length) <= LARGEST_BODY
    )


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def run_superlink(open_paths: Sequence[str] = ()) -> None:
    """Run the program ``flower-superlink`` with the options in ``sys.argv``, guarded, to its end.

    What this imports is Flower's own and not documented; ``tests/engine/test_superlink_guard.py``
    compares the last lines with Flower's.
    """
    import uvicorn
    from flwr.supercore.http_logging import get_uvicorn_log_config
    from flwr.supercore.logger import console_handler
    from flwr.superlink.cli.flower_superlink import (
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,
    )
    from flwr.superlink.main import create_app

    sys.argv[0] = "flower-superlink"
    config = _parse_superlink_lifespan_config()
    uvicorn.run(
        app=SameUserOnly(create_app(config, SuperLinkLifespan), open_paths),
        host=config.host,
        port=config.port,
        access_log=True,
        log_config=get_uvicorn_log_config(console_handler.level),
        # With these headers any user could claim to be another connection.
        proxy_headers=False,
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
        workers=1,  # also where $WEB_CONCURRENCY says otherwise
    )


def belongs_to_user(client: Address, server: Address) -> bool:
    """Whether the client's end of a connection belongs to a process of this user."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    wanted = [_kernel_form(family, client), _kernel_form(family, server)]
    for _ in range(2):  # the kernel may skip a row of a table that changes while it is read
        try:
            rows = KERNEL_TABLES[family].read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # another system than Linux
            return _is_in_a_process(client, server)
        for row in rows:
            columns = row.split()
            if columns[1:3] == wanted:
                # Without an inode its process has closed it; the kernel may show another user.
                return int(columns[7]) == os.getuid() and int(columns[9]) != 0
    return False


def _kernel_form(family: socket.AddressFamily, address: Address) -> str:
    packed = socket.inet_pton(family, address[0])
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{address[1]:04X}"


def _is_in_a_process(client: Address, server: Address) -> bool:
    """The same, found in the processes of this user, which takes longer."""
    for process in psutil.process_iter():
        try:
            if process.uids().real != os.getuid():
                continue
            connections = process.net_connections(kind="tcp")
        except (psutil.Error, OSError):
            continue
        if any(
            (connection.laddr, connection.raddr) == (client, server) for connection in connections
        ):
            return True
    return False
