"""Printing to outputs that are closed, cut, or have a narrow encoding."""

import os
import subprocess
import sys

import pytest

PRINT = """
import sys
from fedul_flwr.engine.shell import open_streams
open_streams()
"""


def run(program: str, shell: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program of Python by a line of a shell, in which ``$P`` is Python."""
    names = {"P": sys.executable, "PROGRAM": PRINT + program, **environment}
    env = {**os.environ, "PYTHONSAFEPATH": "1", **names}
    return subprocess.run(["bash", "-c", shell], env=env, capture_output=True, check=False)


def test_work_goes_on_when_the_reader_has_gone_and_its_exit_code_counts() -> None:
    program = "\nfor i in range(100000): print(i)\nsys.stdout.flush(); sys.stderr.write('end')\n"
    shell = '"$P" -c "$PROGRAM" | head -1; exit ${PIPESTATUS[0]}'
    done = run(program + "sys.exit(7)", shell)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"0\n", b"end")


def test_a_full_disk_is_no_reader_that_has_gone() -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")
    done = run("print(1, flush=True)", '"$P" -c "$PROGRAM" >/dev/full')
    assert done.returncode != 0
    assert b"No space left" in done.stderr
