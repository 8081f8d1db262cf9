"""The program ``flower-superlink`` for this user alone, which cleans up after its starter.

``python -m fedul_flwr.engine.superlink_program PARENT HOME ADDRESS [OPTION ...]``: its interface is
at ``ADDRESS``, as ``host:port``. If process ``PARENT`` is killed before it can clean up, this
program does it instead. (Flower's processes would then end by themselves, but Ray's agents would
not.) ``PARENT`` = 0 leaves it running.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from fedul_flwr.engine.own_connections import guard_servers
from fedul_flwr.engine.simulation_forks import load_superlink


def main() -> None:
    """Run the program."""
    parent, home, address = int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
    superlink = load_superlink(address, Path(home))
    if parent:
        threading.Thread(target=_clean_up_after, args=(parent, home), daemon=True).start()
    guard_servers()
    host, _, port = address.rpartition(":")
    sys.argv[:1] = ["flower-superlink", "--host", host, "--port", port]
    sys.exit(superlink())


def _clean_up_after(parent: int, home: str) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    subprocess.Popen([sys.executable, "-P", "-m", "fedul_flwr.engine.process_tree", home])


if __name__ == "__main__":
    main()
