"""Commands of Flower's program ``flwr``, as forks of a process that has loaded it.

Loading takes one to three seconds, and every run needs several commands.
``python -m fedul_flwr.engine.flower_commands FILE`` is such a process; ``FILE`` is the number of
the socket that orders come from.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from fedul_flwr.engine.program_forks import forget_app, forked, load_program

_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables of notebooks, by which Flower would put colors into its answers."""


def answer_orders(orders: socket.socket) -> None:
    """Run the commands that are ordered, side by side, until nobody can order any more.

    An order is a line of JSON with the arguments, and the file that the command writes its output
    to. A byte answers it once the command is on its way.
    """
    for name in _COLORS:
        os.environ.pop(name, None)
    flwr = load_program("flwr")
    gc.freeze()  # forks share what is loaded
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the commands
    while True:
        line, files, _, _ = socket.recv_fds(orders, 65536, 1)
        if not line:
            return
        while not line.endswith(b"\n"):
            line += orders.recv(65536)
        if forked("flwr", orders):
            _run(flwr, json.loads(line), files[0])
        os.close(files[0])
        orders.sendall(b".")


def _run(flwr: Callable[[], Any], arguments: list[str], output: int) -> NoReturn:
    """Run one command, and end this process."""
    os.dup2(output, 1)
    os.close(output)
    # Lines come when they are written.
    out = io.FileIO(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    forget_app()
    sys.argv = ["flwr", *arguments]
    try:
        flwr()
    except SystemExit:
        pass
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(0)  # at once: to take down a loaded Python takes longer than the command


if __name__ == "__main__":
    answer_orders(socket.socket(fileno=int(sys.argv[1])))
