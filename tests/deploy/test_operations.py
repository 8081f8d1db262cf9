"""What an operator sees of a consortium: figures, a line about health, logs in one form."""

import inspect
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from flwr.serverapp import Grid
from flwr.supercore.exit import flwr_exit
from prometheus_client.parser import text_string_to_metric_families

from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.data.run_files.store import CURRENT_RUN, note_run
from fedul_flwr.deploy.certificates import Address
from fedul_flwr.deploy.figures import serve_figures
from fedul_flwr.deploy.log_filter import line_in_form
from fedul_flwr.server_app import serve

LINES = [
    {"round": 1, "clients": 3, "failures": 1, "seconds": 7.5, "bytes_up": 10, "bytes_down": 20},
    {"round": 2, "clients": 2, "failures": 2, "seconds": 5.0, "bytes_up": 11, "bytes_down": 22},
]


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "first").mkdir()
    monkeypatch.setenv(CURRENT_RUN, str(tmp_path / "run.json"))
    return tmp_path / "run.json"


@pytest.fixture
def endpoint(current: Path) -> Iterator[str]:
    server = serve_figures(Address("127.0.0.1", 0), current)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def figures(address: str) -> dict[str, float]:
    families = text_string_to_metric_families(get(f"{address}/metrics"))
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_given_a_run_then_prometheus_gets_its_figures(endpoint: str, tmp_path: Path) -> None:
    assert set(figures(endpoint).values()) == {0}
    assert get(f"{endpoint}/health") == "No run yet."
    run = tmp_path / "first"
    note_run(run, 20, "training")
    text = "".join(f"{json.dumps(line)}\n" for line in LINES)
    (run / "metrics.jsonl").write_text(text + '{"round": 3, "cl')  # a line is being written
    assert figures(endpoint) == {
        **{"fedul_training": 1, "fedul_round": 2, "fedul_rounds": 20, "fedul_owners": 2},
        **{"fedul_round_seconds": 5.0, "fedul_failures": 3},
        **{"fedul_bytes_up": 21, "fedul_bytes_down": 42},
    }
    line = f"Run {run}: training, 2 of 20 rounds; in the last one 2 owners, 2 failures."
    assert get(f"{endpoint}/health") == line
    note_run(run, 20, "finished")
    assert get(f"{endpoint}/health") == line.replace("training", "finished")


def test_given_a_process_that_dies_then_health_says_how_to_resume(
    endpoint: str, current: Path, tmp_path: Path
) -> None:
    note_run(tmp_path / "first", 20, "training")
    noted = json.loads(current.read_text())
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in ([dead.pid, 0.0], [os.getpid(), noted["process"][1] - 1]):  # or its id's next
        current.write_text(json.dumps({**noted, "process": process}))
        said = get(f"{endpoint}/health")
        assert "first: died, 0 of 20 rounds" in said
        assert f"--resume {tmp_path / 'first'} continues it." in said
    assert figures(endpoint)["fedul_training"] == 0


def test_given_a_killed_process_that_nobody_has_asked_for_then_its_run_has_died(
    endpoint: str, current: Path, tmp_path: Path
) -> None:
    note_run(tmp_path / "first", 20, "training")
    noted = json.loads(current.read_text())
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(server.pid).create_time()
    current.write_text(json.dumps({**noted, "process": [server.pid, started]}))
    assert "first: training, 0 of 20 rounds" in get(f"{endpoint}/health")
    server.kill()
    while psutil.Process(server.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert "first: died, 0 of 20 rounds" in get(f"{endpoint}/health")
    server.communicate()


def of_flower() -> None:
    """As Flower's handler of signals ends a run that is stopped, which itself ends the process."""
    exec(compile("raise SystemExit(0)", str(inspect.getsourcefile(flwr_exit)), "exec"))


def of_keyboard() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [of_keyboard, of_flower])
def test_given_an_interrupted_run_then_health_says_that_it_has_stopped(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]
) -> None:
    def train(*_: Any) -> None:
        assert "first: training" in get(f"{endpoint}/health")
        stop()

    monkeypatch.setattr("fedul_flwr.server_app.train", train)
    settings = parse_flat({"dataset": "digits", "output": str(tmp_path / "first")})
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        serve(cast(Grid, None), settings)
    assert "first: stopped, 0 of 30 rounds" in get(f"{endpoint}/health")
    assert figures(endpoint)["fedul_training"] == 0


def test_given_no_endpoint_then_nothing_is_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CURRENT_RUN, raising=False)
    note_run(tmp_path, 1, "training")
    assert list(tmp_path.iterdir()) == []


NOW = datetime(2026, 11, 27, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("\x1b[92mINFO \x1b[0m:      Sent successfully\n", "info", "Sent successfully"),
        ("\x1b[93mWARNING \x1b[0m:   Attempt: failed\n", "warning", "Attempt: failed"),
        ("INFO:     Shutting down\n", "info", "Shutting down"),
        (
            '2026-11-28T00:01:51.170Z INFO [uvicorn.access] 127.0.0.1:1 - "POST /a" 200\n',
            *("info", '127.0.0.1:1 - "POST /a" 200'),
        ),
        ('  File "x.py", line 3\n', "info", '  File "x.py", line 3'),
        ("WARNING: without encryption", "warning", "without encryption"),
    ],
)
def test_given_a_line_of_any_program_then_json_has_its_parts(
    line: str, level: str, message: str
) -> None:
    assert json.loads(line_in_form(line, "json", "superlink", NOW)) == {
        "time": "2026-11-27T12:00:00.500+00:00",
        **{"level": level, "program": "superlink", "message": message},
    }
    assert "\x1b" not in line_in_form(line, "text", "superlink", NOW)


PROGRAM = """
import os, subprocess, sys
from fedul_flwr.deploy.log_filter import filter_output
filter_output("json", "supernode")
filter_output("json", "supernode")  # as after a new start in the same process
print("\\033[92mINFO \\033[0m: of itself", flush=True)
subprocess.run([sys.executable, "-c", "import sys; print('ERROR : below', file=sys.stderr)"])
os.execv(sys.executable, [sys.executable, "-c", "print('after it')"])
"""


def test_given_processes_below_a_program_then_all_they_write_has_one_form() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        *(("info", "of itself"), ("error", "below"), ("info", "after it")),
    ]
    assert done.stderr == b""


def test_given_a_program_that_fails_at_once_then_its_last_words_are_written_when_it_ends(
    tmp_path: Path,
) -> None:
    code = (
        "from fedul_flwr.deploy.log_filter import filter_output\n"
        "filter_output('text', 'supernode'); raise SystemExit('certificate verify failed')"
    )
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run([sys.executable, "-c", code], stdout=log, check=False)
    assert done.returncode == 1
    assert (tmp_path / "log").read_text() == "certificate verify failed\n"
