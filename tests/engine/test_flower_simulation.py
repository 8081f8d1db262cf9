"""Flower's simulation on Ray: its environment, how it fails, and nothing left behind."""

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.user_files import flatten
from fedul_flwr.engine import flower_simulation
from fedul_flwr.engine.flower_run import as_toml
from fedul_flwr.engine.flower_simulation import (
    MARK,
    end_marked,
    new_home,
    run_on_ray,
    simulation_environment,
)
from tests.support.patience import quiet_seconds
from tests.support.settings import Settings


def test_settings_reach_flower_as_they_are() -> None:
    """As a TOML file, which ``flwr run --run-config`` reads."""
    settings = {
        **{"text": 'it\'s "ü"\\ \n\t\x01\x7f 😀', "empty": "", "on": True, "off": False},
        **{"whole": -3, "part": 1e-05, "much": float("inf"), "table.of-one": 0.1},
    }
    assert flatten(tomllib.loads(as_toml(settings))) == settings


def test_ray_asks_for_a_secret_token() -> None:
    home = new_home()
    environment = simulation_environment(home, "")
    token = Path(environment["RAY_AUTH_TOKEN_PATH"])
    assert environment["RAY_AUTH_MODE"] == "token"
    assert len(token.read_text()) == 64
    assert token.stat().st_mode & 0o077 == 0
    assert home.stat().st_mode & 0o077 == 0
    end_marked(home)
    assert not home.exists()


@pytest.fixture
def tiny(settings: Settings) -> RunConfig:
    config = settings(model="mlp", num_rounds=300, local_epochs=1, **{"points-per-client": 40})
    Path(config.output).mkdir()
    return config


def log(config: RunConfig) -> Path:
    return Path(config.output) / "flower.log"


def test_a_program_that_does_not_start(
    tiny: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    started: Callable[[], set[int]],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(flower_simulation, "_PROGRAM", "no.luck")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "exit code 1" in run_on_ray(tiny, 2, 1, 0.0, "", log(tiny))
    assert "'no'" in log(tiny).read_text()
    assert list(tmp_path.glob("fedul-*")) == []


@pytest.mark.slow
@pytest.mark.ray
def test_given_no_processor_for_a_client_then_flowers_reason_and_nothing_of_the_users_is_touched(
    tiny: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    started: Callable[[], set[int]],
    tmp_path: Path,
) -> None:
    home = tmp_path / "users-home"
    home.mkdir()
    monkeypatch.setenv("FLWR_HOME", str(home))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    reason = run_on_ray(tiny, 2, 100_000, 0.0, "", log(tiny))
    assert reason.startswith("ValueError: ")
    assert "\x1b" not in log(tiny).read_text()
    assert list(home.iterdir()) == []


@pytest.mark.slow
@pytest.mark.ray
def test_a_killed_simulation(tiny: RunConfig, started: Callable[[], set[int]]) -> None:
    reasons: list[str] = []
    run = threading.Thread(
        target=lambda: reasons.append(run_on_ray(tiny, 2, 1, 0.0, "", log(tiny)))
    )
    run.start()
    program: list[psutil.Process] = []

    def rounds_are_done() -> bool:
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if MARK in process.environ():
                    program[:] = [process]
        return (Path(tiny.output) / "metrics.jsonl").exists()

    wait_for(rounds_are_done)
    program[0].kill()
    run.join(30)
    assert "was killed" in reasons[0]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("number", "target"),
    [
        (signal.SIGTERM, "python"),  # while it starts
        pytest.param(signal.SIGINT, "ray::", marks=pytest.mark.slow),  # Ctrl-C
        pytest.param(signal.SIGKILL, "raylet", marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_no_process(
    number: signal.Signals, target: str, tiny: RunConfig, started: Callable[[], set[int]]
) -> None:
    # What is started in the background of a shell ignores Ctrl-C, and so would its children.
    program = f"""
    import signal
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine.flower_simulation import run_on_ray
    config = resolve({tiny.to_flat()!r}, Path.cwd())
    run_on_ray(config, 2, 1, 0.0, "", Path({str(log(tiny))!r}))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.PIPE
    )
    own = psutil.Process(process.pid)
    wait_for(lambda: any(p.name().startswith(target) for p in own.children(recursive=True)))
    process.send_signal(number)
    _, errors = process.communicate(timeout=40)
    assert process.returncode == -number, errors.decode()
    if number != signal.SIGINT:  # the program outlives the command and sees to it
        wait_for(lambda: not started(), seconds=20)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    for _ in quiet_seconds(seconds):
        with contextlib.suppress(psutil.Error):
            if condition():
                return
    raise AssertionError("waited in vain")
