"""Flower's programs of a consortium: guarded against other users, and started again."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import secrets
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

import psutil

from fedul_flwr.data.run_files.store import CURRENT_RUN
from fedul_flwr.deploy.certificates import parse_listen
from fedul_flwr.deploy.log_filter import FILTER, filter_output
from fedul_flwr.deploy.status import LAST_RUN
from fedul_flwr.engine.flower_run import scripts_directory
from fedul_flwr.engine.flower_simulation import end_processes, is_alive
from fedul_flwr.engine.shell import without_proxy
from fedul_flwr.engine.superlink_guard import run_superlink
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


def start(
    program: Program,
    options: Sequence[str],
    *,
    runs_from_anywhere: bool = False,
    log_format: str = "text",
    metrics: str = "",
) -> None:
    """Run ``flower-superlink`` or ``flower-supernode`` in this process until it ends.

    The SuperLink answers only processes of the user who started it, but for its paths for
    SuperNodes: no other user, and nobody elsewhere, can start a run or change who takes part. The
    SuperNode gives messages only to the SuperExec that is started here.

    A program of which a part has ended, while the rest of it waits, starts again in this process:
    Flower's SuperNode stops asking for messages at an answer that it did not expect, and stays.
    """
    for name, value in (("--runs-from-anywhere", runs_from_anywhere), ("--metrics", metrics)):
        if value and program == "supernode":
            raise UserError(
                f"{name} is for the SuperLink: no run starts at a SuperNode.",
                "option-without-effect",
                option=name,
            )
    if program == "superlink":
        file = Path(os.environ.setdefault(CURRENT_RUN, str(Path(LAST_RUN).absolute())))
        if metrics:
            from fedul_flwr.deploy.figures import serve_figures

            serve_figures(parse_listen(metrics, "--metrics"), file)
    filter_output(log_format, program)
    for key in set(os.environ) - set(direct := without_proxy(os.environ)):
        del os.environ[key]
    os.environ.update(direct)
    name = f"flower-{program}"
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=name)
    sys.argv = [name, *options]
    threading.Thread(target=_watch_processes, daemon=True).start()
    if program == "superlink":
        if runs_from_anywhere:
            entry.load()()
        else:
            run_superlink(OWNERS_PATHS)
        return
    threading.excepthook = _start_again_without_a_thread
    superexec, more = _start_superexec(options)
    sys.argv += more
    try:
        entry.load()()
    except SystemExit:  # it means to end
        if superexec is not None:
            superexec.terminate()
        raise
    except Exception:
        traceback.print_exc()
    start_again("it no longer asks for messages")


def _start_superexec(
    options: Sequence[str],
) -> tuple[subprocess.Popen[bytes] | None, list[str]]:
    """Start the program that answers a SuperNode's messages, as Flower's SuperNode would.

    Both get a secret, without which a SuperNode gives no message away; Flower's SuperNode would
    start it without one, and then give messages to every user of this machine.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--isolation", default="subprocess")
    parser.add_argument("--superexec-auth-secret-file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    parser.add_argument("--ssl-ca-certfile")
    parser.add_argument("--allow-runtime-dependency-installation", action="store_true")
    parsed, _ = parser.parse_known_args(options)
    if parsed.isolation == "process":
        if parsed.superexec_auth_secret_file is None:
            raise UserError(
                "--isolation process needs --superexec-auth-secret-file: without it every user of "
                "this machine could answer this owner's messages.",
                "option-missing",
                option="--isolation",
            )
        return None, []
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parsed.host, parsed.host)
    host = f"[{host}]" if ":" in host else host
    command = [str(scripts_directory() / SUPEREXEC), "--parent-pid", str(os.getpid())]
    command += ["--runtime-api-address", f"{host}:{parsed.port}"]
    if parsed.ssl_ca_certfile:
        command += ["--root-certificates", parsed.ssl_ca_certfile]
    else:
        command += ["--insecure"]
    if parsed.allow_runtime_dependency_installation:
        command += ["--allow-runtime-dependency-installation"]
    secret = secrets.token_bytes(32)
    theirs, ours = _pipe(secret), _pipe(secret)
    flag = "--superexec-auth-secret-file"
    superexec = subprocess.Popen([*command, flag, f"/dev/fd/{theirs}"], pass_fds=[theirs])
    os.close(theirs)
    again = ["--isolation", "process", "--host", parsed.host, "--port", parsed.port]
    return superexec, [*again, flag, f"/dev/fd/{ours}"]


def _pipe(content: bytes) -> int:
    """A file of which ``content`` can be read once, by a process that has its number."""
    end, start = os.pipe()
    os.write(start, content)
    os.close(start)
    return end


def start_again(why: str) -> NoReturn:
    """End the processes of this one and, after a pause, replace it by one with the same command."""
    with _once:  # never released: the process is replaced
        time.sleep(GRACE)
        text = f"This program does not work any more: {why}. It starts again in {PAUSE:g} s."
        print(text, file=sys.stderr, flush=True)
        # Flower's processes look for the id of this one, which stays.
        children = psutil.Process().children(recursive=True)
        children = [child for child in children if str(child.pid) != os.environ.get(FILTER)]
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
    children: set[psutil.Process] = set()
    while True:
        time.sleep(WATCH)
        # Short programs that are started beside it do not count.
        children |= {c for c in psutil.Process().children() if _is_superexec(c)}
        if ended := [process for process in children if not is_alive(process)]:
            start_again(f"its process {ended[0].pid} has ended")


def _is_superexec(process: psutil.Process) -> bool:
    """Whether a live process runs Flower's SuperExec, perhaps by an interpreter."""
    try:
        words = [process.name(), *process.cmdline()[:3]]
    except psutil.Error:
        return False
    return is_alive(process) and any(Path(word).name == SUPEREXEC for word in words)
