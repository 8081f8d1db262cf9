"""Flower's programs of a consortium: guarded against other users, and started again."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Literal, NoReturn

import psutil

from fedul_flwr.engine.own_connections import guard_servers
from fedul_flwr.engine.process_tree import end_processes, is_alive, runs_program
from fedul_flwr.engine.superlink_environment import without_proxy
from fedul_flwr.errors import UserError

Program = Literal["superlink", "supernode"]

OWNERS_PATHS = ("/v1/fleet/",)
"""Paths of the SuperLink that SuperNodes use."""
GRACE = 10.0
"""Seconds that a program has to end by itself: its parts also end when all of it ends."""
PAUSE = 60.0
"""Further seconds before a program starts again. So long, two intervals of its heartbeat, a
SuperLink counts a node as connected that could not say goodbye, and refuses it."""
SUPEREXEC = "flower-superexec"
"""The program that carries out what either program is sent."""
WATCH = 2.0
"""Seconds between two looks at the processes that a program has started."""

_once = threading.Lock()


def start(program: Program, options: Sequence[str], *, runs_from_anywhere: bool = False) -> None:
    """Run ``flower-superlink`` or ``flower-supernode`` in this process until it ends.

    Both answer only processes of the user who started them, but for the SuperLink's paths for
    SuperNodes: no other user, and nobody elsewhere, can start a run or change who takes part.

    A program of which a part has ended, while the rest of it waits, starts again in this process:
    Flower's SuperNode stops asking for messages at an answer that it did not expect, and stays.

    Parameters
    ----------
    program : which one.
    options : those of Flower's program.
    runs_from_anywhere : whether the SuperLink answers everybody who reaches it.

    Raises
    ------
    UserError
        If a SuperNode is told ``runs_from_anywhere``.
    """
    if runs_from_anywhere and program == "supernode":
        raise UserError("--runs-from-anywhere is for the SuperLink: no run starts at a SuperNode.")
    if not runs_from_anywhere:
        guard_servers(OWNERS_PATHS if program == "superlink" else ())
    for key in set(os.environ) - set(direct := without_proxy(os.environ)):
        del os.environ[key]
    os.environ.update(direct)
    name = f"flower-{program}"
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=name)
    sys.argv = [name, *options]
    if program == "supernode":
        threading.excepthook = _start_again_without_a_thread
    threading.Thread(target=_watch_processes, daemon=True).start()
    if program == "superlink":
        entry.load()()
        return
    try:
        entry.load()()  # raises SystemExit if it means to end
    except Exception:
        traceback.print_exc()
    start_again("it no longer asks for messages")


def start_again(why: str) -> NoReturn:
    """End the processes of this one and, after a pause, replace it by one with the same command."""
    with _once:  # never released: the process is replaced
        time.sleep(GRACE)
        text = f"This program does not work any more: {why}. It starts again in {PAUSE:g} s."
        print(text, file=sys.stderr, flush=True)
        # Flower's processes look for the id of this one, which stays.
        children = psutil.Process().children(recursive=True)
        end_processes(children)
        psutil.wait_procs(children, timeout=1)  # else they would be zombies of the next one
        time.sleep(PAUSE)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _start_again_without_a_thread(failed: threading.ExceptHookArgs) -> None:
    """For an error in a thread, such as the one that sends heartbeats."""
    threading.__excepthook__(failed)
    start_again("a thread of it has failed")


def _watch_processes() -> None:
    """Start again when Flower's SuperExec ends, which each program starts once, for good."""
    known: set[psutil.Process] = set()
    while True:
        time.sleep(WATCH)
        # Short programs that are started beside it do not count.
        known |= {c for c in psutil.Process().children() if runs_program(c, SUPEREXEC)}
        if ended := [process for process in known if not is_alive(process)]:
            start_again(f"its process {ended[0].pid} has ended")
