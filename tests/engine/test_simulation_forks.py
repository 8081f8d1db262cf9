"""How Flower's SuperExec orders simulations from the process that forks them."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.engine import simulation_forks
from fedul_flwr.engine.superlink_environment import superlink_environment

SIMULATION = ["flwr-simulation", "--token", "a b"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Programs that were started; none really is."""
    found: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: found.append(words))
    return found


def start(words: list[str], **options: Any) -> None:
    """Start a program as Flower does."""
    subprocess.Popen(words, **options)


def test_given_a_simulation_then_it_is_ordered_and_other_programs_are_started(
    started: list[list[str]],
) -> None:
    orders, other = socket.socketpair()
    with orders, other:
        simulation_forks._order_simulations(other)
        start(SIMULATION)
        start(["flwr-serverapp"], stdout=subprocess.DEVNULL)
        lines = orders.recv(4096)
    assert json.loads(lines) == SIMULATION
    assert lines.endswith(b"\n")
    assert started == [["flwr-serverapp"]]


def test_given_nobody_who_forks_any_more_then_a_simulation_is_started_as_by_flower(
    started: list[list[str]],
) -> None:
    orders, other = socket.socketpair()
    orders.close()
    with other:
        simulation_forks._order_simulations(other)
        start(SIMULATION)
    assert started == [SIMULATION]


def test_a_superlink_looks_for_runs_five_times_a_second_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
    monkeypatch.delenv(name, raising=False)
    assert superlink_environment(tmp_path, "")[name] == "0.2"
    monkeypatch.setenv(name, "3")
    assert superlink_environment(tmp_path, "")[name] == "3"
