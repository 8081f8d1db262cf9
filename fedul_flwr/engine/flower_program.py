"""Flower's program ``flwr``, which runs commands; see :mod:`fedul_flwr.engine.flower_commands`."""

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
from typing import Any, Self

from fedul_flwr.errors import UserError

_COMMANDS = "fedul_flwr.engine.flower_commands"


class FlowerProgram:
    """The program ``flwr``, which some process has loaded.

    Parameters
    ----------
    orders : socket to the process that runs the commands.
    log : file with what the commands write to stderr.
    process : the process, if it ends with this program.
    """

    def __init__(
        self, orders: socket.socket, log: Path, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._log = log
        self._turn = threading.Lock()
        self._orders = orders
        self._process = process

    @classmethod
    def start(cls, environment: Mapping[str, str], log: Path) -> Self:
        """Load the program in the background.

        Parameters
        ----------
        environment : of the program; ``FLWR_HOME`` has the configuration with the address.
        log : file for what the program and its commands write to stderr.
        """
        orders, other = socket.socketpair()
        with other, log.open("wb") as errors:
            process = subprocess.Popen(
                # -P: as for the SuperLink.
                [sys.executable, "-P", "-X", "utf8", "-m", _COMMANDS, str(other.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C must not end commands that stop a run
            )
        return cls(orders, log, process)

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
        if self._process is not None:
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
