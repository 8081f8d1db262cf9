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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_letters_that_an_encoding_lacks_become_question_marks(encoding: str) -> None:
    done = run("print('a … b \\udc80')", '"$P" -c "$PROGRAM"', PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert done.stdout.decode(encoding).replace("…", "?") == "a ? b ?\n"


def test_a_file_does_not_get_the_number_of_an_output_that_is_closed() -> None:
    program = "\nprint('lost', flush=True); file = open(sys.argv[1], 'w+'); print('lost')\n"
    program += "sys.stdout.flush(); sys.stdout.isatty(); sys.stderr.write(str(file.fileno() > 2))"
    shell = 'f=$(mktemp); "$P" -c "$PROGRAM" "$f" >&-; code=$?; cat "$f"; rm "$f"; exit $code'
    done = run(program, shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"True")


def test_all_outputs_may_be_closed() -> None:
    done = run("print(1); print(2, file=sys.stderr)", '"$P" -c "$PROGRAM" <&- >&- 2>&-')
    assert done.returncode == 0


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
