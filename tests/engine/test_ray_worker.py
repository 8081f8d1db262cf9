"""The program that Ray starts for a worker, which asks another process to fork."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedul_flwr.engine import ray_worker

PROGRAM = "import os, sys; print(sys.argv[1:], os.environ['SHOWN'], os.getcwd())"


@pytest.fixture
def place() -> Iterator[Path]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder) / "workers"


@pytest.fixture
def forks(place: Path) -> Iterator[socket.socket]:
    """A socket that listens at that path."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        yield listening


def started(place: Path, folder: Path) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", ray_worker.__file__, place, program, "a b", "--c"],
        env={**os.environ, "SHOWN": "yes"},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_given_nobody_who_forks_then_the_program_runs_by_itself(
    place: Path, tmp_path: Path
) -> None:
    output, _ = started(place, tmp_path).communicate(timeout=60)
    assert output == f"['a b', '--c'] yes {tmp_path}\n"


def test_given_one_who_ends_before_it_forks_then_the_program_runs_by_itself(
    place: Path, forks: socket.socket, tmp_path: Path
) -> None:
    process = started(place, tmp_path)
    forks.accept()[0].close()
    output, _ = process.communicate(timeout=60)
    assert output == f"['a b', '--c'] yes {tmp_path}\n"


def test_given_one_who_forks_then_the_order_is_complete_and_waits_for_the_forks_end(
    place: Path, forks: socket.socket, tmp_path: Path
) -> None:
    process = started(place, tmp_path)
    connection, _ = forks.accept()
    with connection:
        _, [stdin, stdout, stderr], _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("r", encoding="utf-8") as text:
            arguments, folder, environment = json.loads(text.readline())
        connection.sendall(b".")
        assert arguments == [str(tmp_path / "program.py"), "a b", "--c"]
        assert folder == str(tmp_path)
        assert environment["SHOWN"] == "yes"
        os.write(stdout, b"from the fork\n")
        for number in (stdin, stdout, stderr):
            os.close(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        assert process.poll() is None
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("from the fork\n", 0)
