"""End every process of one SuperLink, including re-parented ones.

``python -m fedul_flwr.engine.process_tree HOME`` does it from a shell. With a further ``-`` it
first waits for the end of its standard input, which is that of the process that has opened it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fedul_flwr.data.run_files.run_lock import SUPERLINK_HOME

PREFIX = "fedul-"


def end_superlink(
    home: Path,
    known: Callable[[], list[psutil.Process]] = list,
    patience: float = 3.0,
) -> None:
    """End every process of the SuperLink with this home, then remove the home.

    Parameters
    ----------
    home
        Its ``FLWR_HOME``.
    known
        Returns processes known to belong to it; others are found by their mark.
    patience
        Seconds that they have to end by themselves.
    """
    if not (home / "config.toml").is_file() or not home.name.startswith(PREFIX):
        return  # never delete a directory that was not created by us
    deadline = time.monotonic() + 10 * patience
    wait = patience
    # Several passes: a process may be started while the others are being ended.
    while (left := _living(home, known())) and time.monotonic() < deadline:
        end_processes(left, wait)
        wait = 0.2
    shutil.rmtree(home, ignore_errors=True)


def _living(home: Path, known: list[psutil.Process]) -> list[psutil.Process]:
    """Every live process of a SuperLink: its descendants, and re-parented ones by their mark."""
    found = {process.pid: process for process in known}
    for process in known:  # processes that children of a dead SuperLink have started since
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(SUPERLINK_HOME) == str(home):
                found[process.pid] = process
    found.pop(os.getpid(), None)
    return [process for process in found.values() if is_alive(process)]


def end_processes(processes: list[psutil.Process], patience: float = 3.0) -> None:
    """Ask all to end, then kill those that did not within ``patience`` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _wait_gone(processes, patience)
    for process in processes:
        if is_alive(process):
            with contextlib.suppress(psutil.Error):
                process.kill()
    _wait_gone(processes, 2.0)


def _wait_gone(processes: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not count (its parent may never collect it)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def runs_program(process: psutil.Process, name: str) -> bool:
    """Whether a live process runs the program of this name, perhaps by an interpreter."""
    try:
        words = [process.name(), *process.cmdline()[:3]]
    except psutil.Error:
        return False
    return is_alive(process) and any(Path(word).name == name for word in words)


if __name__ == "__main__":
    if sys.argv[2:] == ["-"]:
        sys.stdin.read()
    end_superlink(Path(sys.argv[1]))
