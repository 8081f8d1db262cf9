"""The program ``flower-superlink`` for this user alone, which cleans up after its starter.

``python -m fedul_flwr.engine.superlink_program PARENT HOME [OPTION ...]``: if process ``PARENT``
is killed before it can clean up, this program does it instead. (Flower's processes would then end
by themselves, but Ray's agents would not.) ``PARENT`` = 0 leaves it running.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import threading
import time

from fedul_flwr.engine.own_connections import guard_servers


def main() -> None:
    """Run the program."""
    parent, home = int(sys.argv.pop(1)), sys.argv.pop(1)
    if parent:
        threading.Thread(target=_clean_up_after, args=(parent, home), daemon=True).start()
    guard_servers()
    [entry] = importlib.metadata.entry_points(group="console_scripts", name="flower-superlink")
    sys.argv[0] = entry.name
    sys.exit(entry.load()())


def _clean_up_after(parent: int, home: str) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    subprocess.Popen([sys.executable, "-P", "-m", "fedul_flwr.engine.process_tree", home])


if __name__ == "__main__":
    main()
