"""Run a program of Python in a fork of a process that has torch loaded; Ray starts workers so.

``python -I -S ray_worker.py SOCKET PROGRAM [ARGUMENT ...]``: the process that listens on ``SOCKET``
runs ``PROGRAM`` in a fork, with this process's environment, directory and output. This process
stays until the fork has ended. If nobody listens, it runs the program itself.

It is started as a file, for every worker: it imports nothing that is slow.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> None:
    """Run the program."""
    place, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as forks:
        try:
            forks.connect(place)
            order = [arguments, os.getcwd(), dict(os.environ)]  # noqa: PTH109  pathlib loads slowly
            socket.send_fds(forks, [b"."], [0, 1, 2])
            forks.sendall(json.dumps(order).encode() + b"\n")
            if forks.recv(1):  # taken
                forks.recv(1)  # ended
                return
        except OSError:
            pass
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main()
