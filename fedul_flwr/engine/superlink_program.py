"""The program ``flower-superlink`` for this user alone, which cleans up after its starter.

``python -m fedul_flwr.engine.superlink_program PARENT HOME ADDRESS ORDERS``: its interface is at
``ADDRESS``, as ``host:port``, and the socket with number ``ORDERS`` gives commands of the program
``flwr``. If process ``PARENT`` is killed before it can clean up, this program does it instead.
(Flower's processes would then end by themselves, but Ray's agents would not.) ``PARENT`` = 0 leaves
it running.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from fedul_flwr.engine.own_connections import guard_servers
from fedul_flwr.engine.simulation_forks import load_superlink


def main() -> None:
    """Run the program."""
    parent, home, address, orders = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    superlink = load_superlink(address, Path(home), socket.socket(fileno=orders))
    if parent:
        threading.Thread(target=_clean_up_after, args=(parent, home), daemon=True).start()
    guard_servers()
    host, _, port = address.rpartition(":")
    # Its SuperExec is already there: see simulation_forks.
    options = ["--insecure", "--simulation", "--isolation", "process"]
    sys.argv = ["flower-superlink", *options, "--host", host, "--port", port]
    sys.exit(superlink())


def _clean_up_after(parent: int, home: str) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    subprocess.Popen([sys.executable, "-P", "-m", "fedul_flwr.engine.process_tree", home])


if __name__ == "__main__":
    main()
