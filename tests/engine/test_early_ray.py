"""A Ray that was started early: what Flower's call of ``ray.init`` becomes."""

from __future__ import annotations

import shlex
import socket
import sys
from typing import Any

import pytest
import ray

from fedul_flwr.engine import early_ray

Call = tuple[tuple[Any, ...], dict[str, Any]]
ENVIRONMENT = {"env_vars": {"PYTHONPATH": "/app"}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls of the real ``ray.init``, which here only notes them."""
    found: list[Call] = []
    init = lambda *words, **options: found.append((words, options))  # noqa: E731
    monkeypatch.setattr(ray, "init", init)
    return found


def initialize(told: bytes, **options: Any) -> bytes:
    """Use a Ray whose starter tells ``told``, and call ``ray.init``; what the starter sees next."""
    ours, its = socket.socketpair()
    with its:
        its.sendall(told)
        if not told:
            its.shutdown(socket.SHUT_WR)
        early_ray.use_ray(ours, "/home dir/workers")
        ray.init(runtime_env=ENVIRONMENT, **options)
        its.setblocking(False)
        try:
            return its.recv(1) or b"closed"
        except BlockingIOError:
            return b"open"


def assert_no_paths(job: Any) -> None:
    """The working folder, which Ray would put first on its workers' path, is not there."""
    job._py_driver_sys_path.extend(["/working/folder"])
    assert list(job._py_driver_sys_path) == []


def test_given_a_ray_that_has_started_then_flower_connects_and_its_workers_are_forks(
    calls: list[Call],
) -> None:
    assert initialize(b"127.0.0.1:7", logging_level="ERROR") == b"open"
    [(words, options)] = calls
    assert words == ("127.0.0.1:7",)
    environment = options["runtime_env"]
    python = shlex.split(environment.pop("py_executable"))
    assert python[0] == sys.executable
    assert python[-2].endswith("ray_worker.py")
    assert python[-1] == "/home dir/workers"
    assert_no_paths(options.pop("job_config"))
    assert options == {"logging_level": "ERROR", "runtime_env": ENVIRONMENT}


@pytest.mark.parametrize(
    ("told", "options"),
    [(b"", {}), (b"127.0.0.1:7", {"num_cpus": 2}), (b"127.0.0.1:7", {"num_gpus": 1})],
)
def test_given_none_or_options_that_it_does_not_take_then_flower_starts_its_own_ray(
    told: bytes, options: dict[str, int], calls: list[Call]
) -> None:
    assert initialize(told, **options) == b"closed"
    [(words, used)] = calls
    assert words == ()
    assert_no_paths(used.pop("job_config"))
    assert used == {"runtime_env": ENVIRONMENT, **options}
