"""The pool of processes: the numbers of one process, and what becomes of one that ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.types import Content
from fedul_flwr.engine import in_process as local_grid
from fedul_flwr.engine import processes, worker
from fedul_flwr.engine.in_process import FIRST_NODE_ID, task_identity
from fedul_flwr.engine.processes import (
    ProcessGrid,
    run_in_processes,
    shares_of_cores,
    worker_environments,
)
from fedul_flwr.federated import messages
from fedul_flwr.federated.flower_internals import ErrorCode
from fedul_flwr.federated.messages import ARRAYS, StoredArray, phase_messages
from fedul_flwr.learning import lanes
from tests.support.patience import wait_until
from tests.support.runs import assert_same_run, metrics, train
from tests.support.settings import Settings

TWO: list[dict[str, str]] = [{}, {}]


@pytest.fixture
def grid() -> Iterator[ProcessGrid]:
    """Two processes with three clients, who know only their settings."""
    with task_identity(), ProcessGrid(3, {"method": "fedul"}, TWO) as grid:
        yield grid


def describe(*clients: int) -> list[Message]:
    """Messages that ask clients who they are."""
    return phase_messages("describe", {FIRST_NODE_ID + client: Content() for client in clients})


def partitions(replies: list[Message]) -> list[Any]:
    return [reply.content.config_records["config"]["partition-id"] for reply in replies]


def pool() -> list[psutil.Process]:
    """This test's processes that answer messages."""
    return [psutil.Process(child.pid) for child in multiprocessing.active_children()]


def test_given_more_messages_than_processes_then_replies_come_in_order_and_both_end() -> None:
    with task_identity(), ProcessGrid(3, {"method": "fedul"}, TWO) as grid:
        assert partitions(grid.answer(describe(2, 0, 1), None)) == [2, 0, 1]
        assert list(grid.get_node_ids()) == [FIRST_NODE_ID + client for client in range(3)]
        found = pool()
    assert len(found) == 2
    assert not any(process.is_running() for process in found)


@pytest.mark.parametrize(
    ("messages", "processes", "cores", "threads"),
    [
        (5, 2, 2, [1, 1, 1, 1, 2]),  # the last one is alone
        (5, 3, 8, [2, 2, 2, 4, 4]),  # 8 // 3, then 8 // 2
        (3, 2, 1, [1, 1, 1]),  # never fewer than one
        (3, 2, 0, [0, 0, 0]),
    ],
)
def test_given_fewer_clients_than_cores_in_a_turn_then_they_share_the_cores(
    messages: int, processes: int, cores: int, threads: list[int]
) -> None:
    assert shares_of_cores(messages, processes, cores) == threads


def test_given_a_killed_process_then_another_takes_its_place(grid: ProcessGrid) -> None:
    grid.answer(describe(0, 1), None)
    before = pool()
    before[0].kill()
    replies = grid.answer(describe(0, 1, 2), None)
    failed = [reply for reply in replies if reply.has_error()]
    assert [reply.error.code for reply in failed] == [ErrorCode.CLIENT_APP_CRASHED]
    assert "signal 9" in failed[0].error.reason
    assert len([reply for reply in replies if reply.has_content()]) == 2
    assert partitions(grid.answer(describe(0, 1, 2), None)) == [0, 1, 2]
    assert len(pool()) == 2


def test_given_processes_that_are_late_then_there_is_no_reply(grid: ProcessGrid) -> None:
    grid.answer(describe(0, 1), None)
    before = pool()
    for process in before:
        process.suspend()
    assert grid.answer(describe(0, 1, 2), 0.5) == []
    assert not any(process.is_running() for process in before)
    assert partitions(grid.answer(describe(0, 1, 2), 60.0)) == [0, 1, 2]


def test_given_an_error_for_the_user_or_of_the_code_then_the_server_gets_it_and_one_is_logged(
    grid: ProcessGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(local_grid, "log", lambda _, form, *values: logged.append(form % values))
    [unknown] = phase_messages("nonsense", {FIRST_NODE_ID: Content()})
    [reply] = grid.answer([unknown], None)
    assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert "'nonsense'" in reply.error.reason
    assert logged == []
    broken = Message(RecordDict({"config": ConfigRecord({})}), FIRST_NODE_ID, "query.phase")
    [reply] = grid.answer([broken], None)
    assert reply.error.reason.startswith("KeyError: 'phase'")
    assert [text.splitlines()[-1] for text in logged] == ["KeyError: 'phase'"]


RUNS = {
    "fedul": {"method": "fedul", "base": "scaffold", "optimizer": "sgd", "fraction-train": 0.5},
    "fedmatch": {"method": "fedmatch", "labels.total": 100},
    "xclp": {"method": "xclp", "labels.total": 100, "semi.labels-only-rounds": 1},
    "lanes": {"method": "supervised", "lanes": 1},
}
QUICK = {"dataset": "digits", "model": "mlp", "num-rounds": 2, "local-epochs": 1}


def assert_as_alone(settings: Settings, options: dict[str, Any]) -> None:
    alone, config = train(settings(**options), 4), settings(**options)
    run_in_processes(config, 4)
    assert_same_run(alone, Path(config.output))


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_numbers_are_those_of_one_process(settings: Settings, options: dict[str, Any]) -> None:
    assert_as_alone(settings, {**QUICK, **options})


def test_a_process_trains_in_one_lane_in_runs_that_have_some() -> None:
    def lane_for(kind: str, number: int | str) -> Any:
        message = SimpleNamespace(metadata=SimpleNamespace(message_type=kind))
        flat = {"lanes": number, "device": "cpu", "method": "fedul"}
        with worker._lane_for(cast(Any, message), cast(Any, SimpleNamespace(run_config=flat))):
            return lanes.current()

    one = lane_for("train", 4)
    assert one is not None
    assert lane_for("train", 4) is one
    assert [lane_for("query", 4), lane_for("train", 0), lane_for("train", "auto")] == [None] * 3


@pytest.mark.parametrize("run", [run_in_processes, local_grid.run_in_process])
def test_replies_beyond_memory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, run: Callable[[RunConfig, int], None]
) -> None:
    """Of four replies, one is in memory when the limit is passed, and three go to disk."""
    options = {**QUICK, "method": "fedul", "model": "cnn-small", "num-rounds": 1}
    alone, config, stored = train(settings(**options), 4), settings(**options), []
    real = messages.Spool.add

    def add(spool: messages.Spool, reply: Message) -> Message:
        arrays = real(spool, reply).content.array_records.get(ARRAYS, {})
        stored.extend([any(isinstance(a, StoredArray) for a in arrays.values())] * bool(arrays))
        return reply

    monkeypatch.setattr(messages, "MOST_IN_MEMORY", 300_000)  # the model has 330 kB
    monkeypatch.setattr(messages.Spool, "add", add)
    run(config, 4)
    assert_same_run(alone, Path(config.output))
    assert stored.count(True) == 3


@pytest.mark.parametrize(
    ("gpus", "share", "visible", "expected"),
    [
        (1, 0.5, None, ["0", "0"]),
        (2, 2.0, None, ["0,1"]),
        (2, 1.0, "5,7", ["5", "7"]),
        (4, 0.3, None, ["0", "1", "2", "3"]),  # as many as there are cores
    ],
)
def test_given_gpus_for_clients_then_each_process_sees_its_own(
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    share: float,
    visible: str | None,
    expected: list[str],
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(processes, "usable_cpus", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = [places["CUDA_VISIBLE_DEVICES"] for places in worker_environments(1, share)]
    assert found == expected


# What is started in the background of a shell ignores Ctrl-C, and so would its children.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedul_flwr.cli.main import program
program()
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of many rounds by the command, after its first one."""
    arguments = ["run", "-c", "model='linear' num-rounds=500", "--output", str(tmp_path / "run")]
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("round 1/500") for line in process.stdout)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_given_a_signal_then_nothing_is_left_and_the_run_goes_on_later(
    command: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    started = psutil.Process(command.pid).children(recursive=True)
    assert len(started) > usable_cpus()  # the pool, and what it is forked from
    if number == signal.SIGINT:
        os.killpg(command.pid, number)  # a terminal sends it to all of them
    else:
        command.send_signal(number)
    said, _ = command.communicate(timeout=60)
    wait_until(lambda: not any(map(alive, started)), 10, "the end of the pool")
    if number != signal.SIGKILL:
        assert command.returncode == 128 + number
        assert said.endswith("Stopped.\n")
        assert not list((tmp_path / "temporary").iterdir())
    done = len(metrics(tmp_path / "run"))
    config = resolve({"resume": str(tmp_path / "run")}, tmp_path)
    run_in_processes(config.model_copy(update={"num_rounds": done + 1}), 10)
    assert len(metrics(tmp_path / "run")) == done + 1


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
