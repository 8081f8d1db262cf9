"""Programs of a consortium of which a part has ended start again, and others end."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.address import resolve_bind_address
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

from fedul_flwr.deploy.start import _start_superexec
from tests.support.refusals import refuses

QUICK = "from fedul_flwr.deploy import start as s; s.GRACE = s.PAUSE = s.WATCH = 0.1"
SUPEREXEC = (
    "subprocess.Popen(['flower-superexec', '-S', '-c', 'import time; time.sleep(1)'], "
    "executable=sys.executable)"
)
FAKE = """
    import importlib.metadata, subprocess, sys, threading, time
    {quick}
    print("started", flush=True)

    def program():
        # Like the server of Flower's SuperNode it keeps the process alive.
        threading.Thread(target=time.sleep, args=(60,), daemon={daemon}).start()
        {end}
        time.sleep(60)

    class Entry:
        load = staticmethod(lambda: program)

    importlib.metadata.entry_points = lambda **_: [Entry]
    s.run_superlink = lambda open_paths: program()
    s.start({program!r}, [])
"""


def fake(program: str, end: str, *, daemon: bool = False) -> subprocess.Popen[str]:
    """A program that ends, or a part of it, by the statement ``end``."""
    code = textwrap.dedent(FAKE).format(quick=QUICK, program=program, end=end, daemon=daemon)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize(
    ("program", "end", "why"),
    [
        ("supernode", "return", "it no longer asks for messages"),
        ("supernode", "threading.Thread(target=lambda: 1 / 0).start()", "a thread of it has"),
        ("superlink", SUPEREXEC, "its process "),
    ],
)
def test_given_a_part_that_ends_then_it_starts_again(program: str, end: str, why: str) -> None:
    with fake(program, end) as process:
        assert process.stdout is not None
        last = threading.Timer(120, process.kill)
        last.start()
        said = []
        # Not to the end of the output: its SuperExec has the same, and outlives it.
        while said.count("started\n") < 2 and (line := process.stdout.readline()):
            said.append(line)
        process.kill()
        last.cancel()
    assert said.count("started\n") == 2
    assert any(line.startswith(f"This program does not work any more: {why}") for line in said)


PROCESS = ["--isolation", "process"]


def test_given_a_superexec_elsewhere_without_a_secret_then_the_supernode_is_refused() -> None:
    with refuses("option-missing", option="--isolation"):
        _start_superexec([*PROCESS, "--superlink", "127.0.0.1:1"])
    secret = ["--superexec-auth-secret-file", "file"]
    assert _start_superexec([*PROCESS, *secret]) == (None, [])


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ([], "127.0.0.1:9094"),
        (["--host", "0.0.0.0", "--port=7"], "127.0.0.1:7"),
        (["--host", "::", "--port", "7"], "[::1]:7"),
        (["--host", "localhost"], "localhost:9094"),
    ],
)
def test_given_options_of_a_supernode_then_its_superexec_shares_a_secret_with_it_alone(
    options: list[str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def started(command: list[str], pass_fds: list[int]) -> str:
        at = command.index("--runtime-api-address")
        told.extend([command[at + 1], Path(command[-1]).read_bytes()])
        return "a process"

    monkeypatch.setattr(subprocess, "Popen", started)
    process, more = _start_superexec(options)
    parsed = _parse_args_run_supernode().parse_args(["--superlink", "a:1", *options, *more])
    runtime = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    assert process == "a process"
    assert parsed.isolation == "process"
    assert resolve_bind_address(f"{runtime}:{parsed.port}") == address
    assert told == [address, Path(parsed.superexec_auth_secret_file).read_bytes()]
    assert len(told[1]) == 32
