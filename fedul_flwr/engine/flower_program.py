"""Flower's program ``flwr``, whose commands are forks of one process that has loaded it.

Loading takes one to three seconds, and every run needs several commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError

_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables of notebooks, by which Flower would put colors into its answers."""
# An order is a line of JSON with the arguments, and the file that the command writes its output to.
_PROGRAM = """\
import gc, importlib.metadata, json, os, signal, socket, sys
[entry] = importlib.metadata.entry_points(group="console_scripts", name="flwr")
flwr = entry.load()
gc.freeze()  # forks share what is loaded
orders = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the commands
while True:
    line, files, _, _ = socket.recv_fds(orders, 65536, 1)
    if not line:
        break
    while not line.endswith(b"\\n"):
        line += orders.recv(65536)
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orders.close()
        os.dup2(files[0], 1)
        os.close(files[0])
        sys.argv = ["flwr", *json.loads(line)]
        try:
            flwr()
        except SystemExit:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(0)  # at once: to take down a loaded Python takes longer than the command
    os.close(files[0])
    orders.sendall(b".")
"""


class FlowerProgram:
    """The program ``flwr``, loaded in the background.

    Parameters
    ----------
    environment : of the program; ``FLWR_HOME`` has the configuration with the SuperLink's address.
    log : file for what the program and its commands write to stderr.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._turn = threading.Lock()
        self._orders, other = socket.socketpair()
        with other, log.open("wb") as errors:
            self._process = subprocess.Popen(
                # -u: a command's lines come when they are written. -P: as for the SuperLink.
                [sys.executable, "-u", "-P", "-X", "utf8", "-c", _PROGRAM, str(other.fileno())],
                env={key: value for key, value in environment.items() if key not in _COLORS},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C must not end commands that stop a run
            )

    def lines(self, *arguments: str) -> Iterator[str]:
        """Lines that ``flwr ARGUMENTS`` writes to stdout, until it ends.

        Raises
        ------
        UserError
            If the program has ended.
        """
        read, write = os.pipe()
        with os.fdopen(read, encoding="utf-8", errors="replace", newline="") as output:
            try:
                self._order(arguments, write)
            finally:
                os.close(write)
            yield from output

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The answer of ``flwr ARGUMENTS --format json``.

        Raises
        ------
        UserError
            If there is none, or it is an error; with Flower's reason.
        """
        text = "".join(self.lines(*arguments, "--format", "json"))
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError:
            raise UserError(f"`flwr {arguments[0]}` gave no answer.\n{self._tail()}") from None
        if not answer.get("success"):
            # Flower puts all that it has written before the reason, and an empty line between.
            reason = str(answer.get("error-message", text)).strip().rpartition("\n\n")[2]
            raise UserError(reason.strip())
        return answer

    def close(self) -> None:
        """End the program; commands that run go on. Harmless if repeated."""
        self._orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)

    def _order(self, arguments: tuple[str, ...], output: int) -> None:
        line = json.dumps(arguments).encode() + b"\n"
        try:
            with self._turn:
                socket.send_fds(self._orders, [line], [output])
                taken = self._orders.recv(1)
        except OSError:
            taken = b""
        if not taken:
            raise UserError(f"Flower's program flwr has ended.\n{self._tail()}")

    def _tail(self) -> str:
        """Last lines that the program wrote to stderr."""
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-5:])
