"""One form for all that a program of Flower and the processes below it write, without colors.

    python -m fedul_flwr.deploy.log_filter json supernode

It imports nothing that takes long: a program may end at once, and its last words matter most.
"""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime

FILTER = "FEDUL_LOG_FILTER"
"""Environment variable: id of the process that reads what a program writes."""
LONGEST = 10.0
"""Seconds that a program waits for that process at its end."""
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_LEVEL = re.compile(r"(?:\S+Z )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) *(?:\[[\w.]+\])? *:? *(.*)")


def line_in_form(line: str, form: str, program: str, now: datetime) -> str:
    """A line of a log as ``"text"`` or ``"json"``; of the latter empty for one without content."""
    line = _COLORS.sub("", line).rstrip("\n")
    if form == "text":
        return f"{line}\n"
    parsed = _LEVEL.match(line)
    level, message = parsed.groups() if parsed else ("INFO", line)
    if not message.strip():
        return ""
    fields = {"time": now.isoformat(timespec="milliseconds"), "level": level.lower()}
    return json.dumps({**fields, "program": program, "message": message.rstrip()}) + "\n"


def filter_output(form: str, program: str) -> None:
    """Let this process, and those that it starts, write through a filter of the given form.

    A terminal gets text as it is. A program that has replaced this process keeps its filter.
    """
    if FILTER not in os.environ:
        if form == "text" and sys.stdout.isatty():
            return
        command = [sys.executable, "-m", "fedul_flwr.deploy.log_filter", form, program]
        reader = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert reader.stdin is not None
        os.environ[FILTER] = str(reader.pid)
        for stream in (1, 2):
            os.dup2(reader.stdin.fileno(), stream)
        reader.stdin.close()
    # In a container everything ends with the first program, and a line not written then is lost.
    atexit.register(_wait_for_filter, int(os.environ[FILTER]))


def _wait_for_filter(reader: int) -> None:
    """Write nothing more, and wait until the process that reads has written all."""
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    end = time.monotonic() + LONGEST  # another process may still write
    with suppress(ChildProcessError):  # it has been waited for
        while time.monotonic() < end and os.waitpid(reader, os.WNOHANG) == (0, 0):
            time.sleep(0.02)


if __name__ == "__main__":
    wanted, name = sys.argv[1:3]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those whose lines it reads still have to end
    for text in open(0, encoding="utf-8", errors="replace"):  # noqa: SIM115
        sys.stdout.write(line_in_form(text, wanted, name, datetime.now(UTC)))
        sys.stdout.flush()
