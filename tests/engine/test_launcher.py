"""The launcher against a tiny Flower app: results, and nothing left behind."""

import contextlib
import http.server
import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.engine import flower_run
from fedul_flwr.engine.flower_run import FlowerProgram
from fedul_flwr.engine.flower_simulation import LocalSuperLink, RunOutcome, run_app
from fedul_flwr.engine.superlink import _is_compiled, end_superlink, superlink_environment
from tests.support.patience import quiet_seconds
from tests.support.refusals import refuses

# Flower's and typer's own, about libraries that they call.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PYPROJECT = """
[project]
name = "miniapp"
version = "0.1.0"

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "miniapp.apps:server"
clientapp = "miniapp.apps:client"

[tool.flwr.app.config]
output = ""
fail = false
num-rounds = 2
"""

APPS = """
import json
import time
import uuid
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


def record():
    return RecordDict({"a": ConfigRecord({"x": 1})})


@client.query()
def answer(message, context):
    return Message(record(), reply_to=message)


@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.05)
    with Path(context.run_config["output"], "metrics.jsonl").open("a") as file:
        for step in range(1, context.run_config["num-rounds"] + 1):
            messages = [Message(record(), dst_node_id=n, message_type="query") for n in nodes]
            replies = list(grid.send_and_receive(messages))
            assert not any(reply.has_error() for reply in replies)
            print(f"mini round {step} with {len(replies)} replies")
            file.write(json.dumps({"round": step, "test_error": 10.0 / step}) + "\\n")
            file.flush()
    if context.run_config["fail"]:
        raise ValueError("broken on purpose")
"""


@pytest.fixture(scope="module", autouse=True)
def one_bytecode_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Python may not write bytecode, let all SuperLinks here share one cache of it."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONDONTWRITEBYTECODE" in os.environ and not _is_compiled():
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("pycache")))
        yield


@pytest.fixture(scope="module")
def mini_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("miniapp")
    (root / "miniapp").mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "miniapp" / "__init__.py").touch()
    (root / "miniapp" / "apps.py").write_text(APPS)
    return root


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], set[int]]]:
    """Ids of all live processes that a test started, which must be none at its end."""
    token = uuid.uuid4().hex  # inherited by whatever is started, and by nobody else's processes
    monkeypatch.setenv("FEDUL_TEST", token)

    def ids() -> set[int]:
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get("FEDUL_TEST") == token:
                    found.add(process.pid)
        return found

    yield ids
    assert ids() == set()


def start(superlink: LocalSuperLink, app: Path, output: Path, **options: object) -> RunOutcome:
    on_poll = options.pop("on_poll", lambda: None)
    assert callable(on_poll)
    return run_app(
        superlink,
        app,
        {"output": str(output), **options},  # type: ignore[dict-item]
        clients=(2, usable_cpus(), 0.0),  # one Ray worker: each takes seconds to start
        on_poll=on_poll,
        log_file=output / "flower.log",
    )


class Foreign(http.server.BaseHTTPRequestHandler):
    """Someone else's SuperLink: healthy, and counts who talks to it."""

    calls = 0

    def do_GET(self) -> None:
        type(self).calls += 1
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET


@pytest.mark.ray
def test_a_failed_run_has_its_reason_lines_and_log_and_nothing_of_the_users_is_touched(
    mini_app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]]
) -> None:
    home = tmp_path / "users-home"
    home.mkdir()
    monkeypatch.setenv("FLWR_HOME", str(home))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    foreign = None
    with contextlib.suppress(OSError):  # the port may be in use on a developer's machine
        foreign = http.server.HTTPServer(("127.0.0.1", 39091), Foreign)
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
    polls: list[None] = []
    with LocalSuperLink() as superlink:
        own_home = superlink.home
        assert (own_home / "config.toml").is_file()
        assert superlink.pid in started()
        failed = start(superlink, mini_app, tmp_path, fail=True, on_poll=lambda: polls.append(None))
        assert failed == RunOutcome("finished:failed", "ValueError: broken on purpose")
        assert not failed.succeeded
    if foreign is not None:
        foreign.shutdown()
        foreign.server_close()
    assert len(polls) > 5
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    log = (tmp_path / "flower.log").read_text()
    assert "mini round 2 with 2 replies" in log
    assert "\x1b" not in log
    assert list(home.iterdir()) == []
    assert Foreign.calls == 0
    assert not own_home.exists()


@pytest.mark.slow
@pytest.mark.ray
def test_a_dead_process(mini_app: Path, tmp_path: Path, started: Callable[[], set[int]]) -> None:
    def kill(victim: str) -> RunOutcome:
        def on_poll() -> None:
            with contextlib.suppress(psutil.Error):  # already dead: this is called again and again
                if simulation := superlink.simulation():
                    dying = psutil.Process(superlink.pid) if victim == "superlink" else simulation
                    dying.kill()

        return start(superlink, mini_app, tmp_path, on_poll=on_poll)

    with LocalSuperLink() as superlink:
        for victim, reason in (("simulation", "was killed"), ("superlink", "SuperLink died")):
            outcome = kill(victim)
            assert outcome.status == "lost"
            assert reason in outcome.details


@pytest.mark.ray
@pytest.mark.parametrize(
    ("number", "target", "exit_code"),
    [
        (signal.SIGTERM, "python", -signal.SIGTERM),  # while the SuperLink starts
        pytest.param(signal.SIGINT, "raylet", -signal.SIGINT, marks=pytest.mark.slow),  # Ctrl-C
        pytest.param(signal.SIGKILL, "flwr-simulation", -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_no_process(
    number: signal.Signals,
    target: str,
    exit_code: int,
    mini_app: Path,
    tmp_path: Path,
    started: Callable[[], set[int]],
) -> None:
    # What is started in the background of a shell ignores Ctrl-C, and so would its children.
    program = f"""
    import signal
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from fedul_flwr.engine.flower_simulation import LocalSuperLink, run_app
    with LocalSuperLink() as superlink:
        run_app(superlink, Path({str(mini_app)!r}), {{"output": {str(tmp_path)!r}}},
                clients=(2, 1.0, 0.0), on_poll=lambda: None, log_file=Path({str(tmp_path / "l")!r}))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.PIPE
    )
    own = psutil.Process(process.pid)
    wait_for(lambda: any(p.name().startswith(target) for p in own.children(recursive=True)))
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == exit_code, errors.decode()
    if number != signal.SIGINT:  # a process that outlives it sees to it
        wait_for(lambda: not started(), seconds=20)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    for _ in quiet_seconds(seconds):
        with contextlib.suppress(psutil.Error):
            if condition():
                return
    raise AssertionError("waited in vain")


def test_no_start_is_a_user_error(
    monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]], tmp_path: Path
) -> None:
    monkeypatch.setattr("fedul_flwr.engine.superlink._PROGRAM", "no.luck")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with refuses("flower-failed", match="'no'"), LocalSuperLink():
        pass
    assert list(tmp_path.glob("fedul-*")) == []


def test_only_a_superlinks_own_home_is_removed(tmp_path: Path) -> None:
    for name in ("fedul-", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "config.toml").touch()
    for path in tmp_path.iterdir():
        end_superlink(path)
        assert path.exists()


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> LocalSuperLink:
    """A SuperLink that does not answer."""
    superlink = LocalSuperLink()
    superlink.home = tmp_path_factory.mktemp("home")
    (superlink.home / "config.toml").write_text(
        '[superlink]\ndefault = "none"\n\n'
        '[superlink.none]\naddress = "127.0.0.1:9"\ninsecure = true\n'
    )
    environment = superlink_environment(superlink.home, "")
    environment |= {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}  # as in a notebook
    superlink._flwr = FlowerProgram(environment)
    return superlink


def test_given_no_superlink_or_an_app_that_flower_does_not_take_then_the_reason_is_told(
    mini_app: Path, tmp_path: Path, nobody: LocalSuperLink
) -> None:
    with refuses("flower-failed", match="Connection"):
        start(nobody, mini_app, tmp_path)
    with refuses("flower-failed", match="packed"):
        start(nobody, tmp_path, tmp_path)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace('publisher = "tests"', ""))
    with refuses("flower-failed", match='refused(?s:.*)"publisher"'):
        start(nobody, tmp_path, tmp_path)


def test_given_a_command_that_runs_when_the_program_is_closed_then_the_command_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]]
) -> None:
    flwr = tmp_path / "flwr"
    flwr.write_text(f"#!{sys.executable} -S\nimport time\nprint('a line')\ntime.sleep(600)\n")
    flwr.chmod(0o755)
    monkeypatch.setattr(flower_run, "scripts_directory", lambda: tmp_path)
    program = FlowerProgram(os.environ)
    lines = program.lines("log", "7", "--stream")
    assert next(lines) == "a line\n"
    program.close()
    assert list(lines) == []


class ScriptedProgram:
    """A program ``flwr`` whose first log breaks off while the run goes on; it notes its orders."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.logs = 0
        self.end = "finished:completed"

    def lines(self, *arguments: str) -> Iterator[str]:
        self.logs += 1
        yield from ["one\n", "\x1b[32mtwo\x1b[0m\n"][: self.logs]

    def ask(self, *arguments: str) -> dict[str, Any]:
        self.asked.append(arguments)
        status = self.end if self.logs > 1 else "running"
        return {"run-id": 7, "runs": [{"status": status, "status-details": "N/A"}]}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> LocalSuperLink:
    """A SuperLink that is kept, with a simulation, and a scripted program."""
    superlink = LocalSuperLink(persistent=True)
    superlink._flwr = ScriptedProgram()  # type: ignore[assignment]
    monkeypatch.setattr(LocalSuperLink, "simulation", lambda self: psutil.Process())
    return superlink


def test_a_torn_log_is_copied(mini_app: Path, tmp_path: Path, scripted: LocalSuperLink) -> None:
    (tmp_path / "flower.log").write_text("earlier\n")
    outcome = start(scripted, mini_app, tmp_path)
    assert outcome == RunOutcome("finished:completed", "")
    assert outcome.succeeded
    assert (tmp_path / "flower.log").read_text() == "earlier\none\ntwo\n"


def test_given_a_superlink_that_is_kept_when_a_run_is_interrupted_then_the_run_is_stopped(
    mini_app: Path, tmp_path: Path, scripted: LocalSuperLink
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(scripted, mini_app, tmp_path, on_poll=interrupt)
    program: Any = scripted.flwr
    assert program.asked[0][0] == "run"
    assert program.asked[-1] == ("stop", "7")
