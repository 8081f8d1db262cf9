"""One run at a time writes to a directory, and keeps no more than it still needs."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.run_files.store import (
    DirectoryLockedError,
    Role,
    lock_directory,
    locked,
    require_unlocked,
)
from fedul_flwr.engine.simulate import plan_rounds
from fedul_flwr.errors import StorageError
from fedul_flwr.run.callbacks import Callback, EvaluatedRound
from tests.support.refusals import refuses
from tests.support.runs import train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {"model": "mlp", "num_rounds": 2, "local_epochs": 1, "fedul.num-sets": 10}


@pytest.fixture
def other() -> Iterator[Callable[..., int]]:
    """``other(directory, role)`` lets another process lock it, until the end; returns its id."""
    children: list[int] = []

    def start(directory: Path, role: Role = "server") -> int:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with locked(directory, role):
                os.write(write, b".")
                signal.pause()
            os._exit(0)
        children.append(child)
        assert os.read(read, 1) == b"."
        os.close(read)
        os.close(write)
        return child

    yield start
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("theirs", "ours"), [("command", "server"), ("server", "command")])
def test_given_a_run_when_another_starts_there_then_it_is_told_who_holds_it(
    tmp_path: Path, other: Callable[..., int], theirs: Role, ours: Role
) -> None:
    child = other(tmp_path, theirs)
    with pytest.raises(DirectoryLockedError) as error, locked(tmp_path, ours):
        pass
    said = str(error.value)
    assert said.startswith(f"Process {child} on {socket.gethostname()} runs in {tmp_path} since 2")
    assert said.endswith(": wait for its end, or name another output.")
    with pytest.raises(DirectoryLockedError):
        require_unlocked(tmp_path)


def test_given_a_command_then_the_program_that_it_starts_may_write(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from fedul_flwr.data.run_files.store import locked
with locked(Path({str(tmp_path)!r}), "server"):
    pass
"""
    with locked(tmp_path, "command"):
        subprocess.run([sys.executable, "-c", program], check=True)


def test_given_a_process_that_was_killed_then_its_directory_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with locked(tmp_path, "server"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / ".lock" / "server.json").exists()  # it could not clean up
    for ours in ("command", "server"):
        with locked(tmp_path, ours):  # type: ignore[arg-type]
            pass
    require_unlocked(tmp_path)


def test_given_two_runs_of_one_second_then_each_has_its_own_directory(tmp_path: Path) -> None:
    name = tmp_path / "runs" / "fedul-digits-20260101-000000"
    made = [lock_directory(name) for _ in range(3)]
    assert [path.name.removeprefix(name.name) for path in made] == ["", "-2", "-3"]
    assert all(path.is_dir() for path in made)


def test_given_a_run_when_a_second_one_starts_or_resumes_there_then_nothing_changes(
    tmp_path: Path, settings: Settings, other: Callable[..., int]
) -> None:
    directory = train(settings(**QUICK), 2)
    (directory / "error.txt").write_text("of the first")
    other(directory)
    before = contents(directory)
    with pytest.raises(DirectoryLockedError):
        train(resolve({"resume": str(directory), "num-rounds": 3}, Path.cwd()), 2)
    run = ["run", "--engine", "in-process", "--resume", str(directory), "-c", "num-rounds=3"]
    said = CliRunner().invoke(app, run)
    assert (said.exit_code, said.stderr.count("Error: Process ")) == (1, 1)
    empty = tmp_path / "empty"
    other(empty)
    said = CliRunner().invoke(app, ["run", "--engine", "in-process", "--output", str(empty)])
    assert (said.exit_code, said.stderr.count("Error: Process ")) == (1, 1)
    assert contents(directory) == before
    assert [path.name for path in empty.iterdir()] == [".lock"]


def test_given_a_directory_deleted_in_mid_run_then_the_run_ends_and_does_not_make_it_anew(
    settings: Settings,
) -> None:
    config = settings(**QUICK)
    directory, moved = Path(config.output), Path(config.output).with_name("moved")

    class Delete(Callback):
        def after_round(self, round: EvaluatedRound) -> None:
            if round.number == 1:
                directory.rename(moved)
                (directory / "clients").mkdir(parents=True)  # as a client may

    with refuses("folder-missing", StorageError):
        train(config, 2, callbacks=[Delete()])
    assert [path.name for path in directory.iterdir()] == ["clients"]
    train(resolve({"resume": str(moved)}, Path.cwd()), 2)  # what was there resumes


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob("clients/*/*"))


def test_the_newest_version_up_to_a_round_stays_and_later_ones(tmp_path: Path) -> None:
    names = [
        *[f"clients/0/control-{number}.safetensors" for number in (2, 9, 10, 11)],
        *["clients/0/own-model-10.safetensors", "clients/0/own-model-9.safetensors"],
        *["clients/1/control-3.safetensors", "clients/2/control-12.safetensors"],
        *["clients/1/labels.csv", "clients/1/control-4.partial"],
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    Run(path=tmp_path).drop_client_versions(10)
    assert sorted(set(names) - set(files(tmp_path))) == [
        "clients/0/control-2.safetensors",
        "clients/0/control-9.safetensors",
        "clients/0/own-model-9.safetensors",
    ]
    Run(path=tmp_path / "elsewhere").drop_client_versions(10)  # where no client keeps anything


def test_given_half_written_files_of_a_killed_process_when_a_run_resumes_then_they_go(
    settings: Settings,
) -> None:
    directory = train(settings(model="linear", num_rounds=1, local_epochs=1), 3)
    parts = [".state-1.safetensors.123.part", "clients/0/.own-1.safetensors.4.part"]
    others = ["mine.part", ".mine.part", "clients/0/notes.5.part"]
    for name in [*parts, *others]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("half")
    train(plan_rounds(resolve({"resume": str(directory)}, directory.parent), 2), 3)
    left = {str(path.relative_to(directory)) for path in directory.rglob("*.part")}
    assert left == set(others)
