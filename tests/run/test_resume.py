"""Runs that resume: how many clients, files that are damaged or gone, a disk that is full."""

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.run_files import run as run_files
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results import plots
from fedul_flwr.run.evaluation import Recorder
from tests.support.error_line import error_line
from tests.support.refusals import code_of
from tests.support.runs import (
    assert_same_arrays,
    assert_same_run,
    last_model,
    metrics,
    resume,
    summary,
    train,
)
from tests.support.settings import Settings

QUICK = "model='mlp' num-rounds=2 local-epochs=1 base='fedadam'"
CLIENTS = 3


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["run", "--engine", "in-process", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds with three clients, for copies."""
    output = tmp_path_factory.mktemp("resume") / "run"
    code, said = run("-c", QUICK, "--num-supernodes", str(CLIENTS), "--output", str(output))
    assert code == 0, said
    return output


@pytest.fixture(scope="module")
def whole(finished: Path) -> Path:
    """Its copy after five rounds without a break."""
    shutil.copytree(finished, finished.with_name("whole"))
    code, said = run("--resume", str(finished.with_name("whole")), "-c", "num-rounds=5")
    assert code == 0, said
    return finished.with_name("whole")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def contents(directory: Path) -> dict[str, bytes]:
    """Files of a run, without the note of why it ended and the locks."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "error.txt" and ".lock" not in path.parts
    }


def test_given_a_run_that_resumes_then_its_number_of_clients_is_the_runs(copy: Path) -> None:
    assert Run.read(copy).data.num_clients == CLIENTS
    code, said = run("--resume", str(copy), "-c", "num-rounds=3")  # no number: not 10
    assert code == 0, said
    assert [line["clients"] for line in metrics(copy)] == [CLIENTS] * 3
    code, said = run("--resume", str(copy), "-c", "num-rounds=4", "--num-supernodes", "2")
    assert code == 1
    assert code_of(error_line(said)) == "number-of-clients"
    code, said = run("--resume", str(copy), "-c", "num-rounds=4", "--num-supernodes", "3")
    assert code == 0, said


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def last(directory: Path, change: Callable[[dict[str, Any]], object], about: str) -> None:
    file = directory / "last.safetensors"
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file, metadata={"fedul": about})


def lines(directory: Path, change: Callable[[list[str]], list[str]]) -> None:
    file = directory / "metrics.jsonl"
    file.write_text("".join(line + "\n" for line in change(file.read_text().splitlines())))


def about_round_2(directory: Path) -> str:
    return (directory / "metrics.jsonl").read_text().splitlines()[1]


def zero(directory: Path, pattern: str) -> None:
    """Make bytes in the middle of a file's arrays 0, which leaves it readable."""
    file = next(directory.glob(pattern))
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = bytes(400)
    assert data != file.read_bytes()
    file.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty model": (lambda d: cut(d / "last.safetensors", 0), "last.safetensors is missing"),
    "a model without an array": (
        lambda d: last(d, lambda arrays: arrays.pop("1.bias"), about_round_2(d)),
        "array '1.bias' must be float32 (128,)",
    ),
    "an array of another shape": (
        lambda d: last(
            d, lambda a: a.__setitem__("1.bias", np.zeros(7, np.float32)), about_round_2(d)
        ),
        "array '1.bias' must be float32 (128,)",
    ),
    "no model": (lambda d: (d / "last.safetensors").unlink(), "and 2 rounds are complete"),
    "zeros in the model": (lambda d: zero(d, "last.safetensors"), "last.safetensors is damaged"),
    "zeros in the memory of the base": (
        lambda d: zero(d, "state-2.safetensors"),
        "state-2.safetensors is damaged",
    ),
    "no memory of the base": (
        lambda d: (d / "state-2.safetensors").unlink(),
        "state-2.safetensors is missing",
    ),
    "junk in the metrics": (
        lambda d: lines(d, lambda found: ["junk", *found]),
        "metrics.jsonl, line 1: not valid",
    ),
    "a number in the metrics": (
        lambda d: lines(d, lambda found: [*found, "3"]),
        'line 3: needs an object with an integer "round"',
    ),
    "metrics without round 1": (
        lambda d: lines(d, lambda found: found[1:]),
        "metrics.jsonl does not have round 1 once",
    ),
    "settings that are a list": (
        lambda d: (d / "config.json").write_text('{"settings": [1], "data": {}}'),
        "config.json is damaged",
    ),
    "half a configuration": (lambda d: cut(d / "config.json", 100), "config.json, line 6: not"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_given_damaged_files_then_nothing_is_erased(copy: Path, damage: str) -> None:
    spoil, expected = DAMAGES[damage]
    spoil(copy)
    before = contents(copy)
    code, said = run("--resume", str(copy), "-c", "num-rounds=3")
    assert code == 1
    assert expected in error_line(said)
    planned = {"config.json"}  # has the new number of rounds
    after = contents(copy)
    assert {n: after[n] for n in after if n not in planned} == {
        n: before[n] for n in before if n not in planned
    }


def test_given_a_torn_last_line_then_that_round_is_evaluated_again(copy: Path) -> None:
    whole = metrics(copy)
    cut(copy / "metrics.jsonl", len((copy / "metrics.jsonl").read_bytes()) - 40)
    (copy / "summary.json").unlink()
    code, said = run("--resume", str(copy))
    assert code == 0, said
    assert metrics(copy) == whole


@pytest.mark.parametrize("file", ["last.safetensors", "metrics.jsonl", "state-4.safetensors"])
def test_given_a_full_disk_then_what_was_there_stays_and_the_run_ends_as_one_without_a_break(
    copy: Path, whole: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in round 4, whichever file comes first."""
    own = Path.replace, Path.open

    def is_full(path: Path) -> bool:
        rounds = (copy / "metrics.jsonl").read_text().count("\n")
        return file in path.name and rounds >= 3

    def replace(path: Path, target: Path) -> Path:
        if is_full(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return own[0](path, target)

    def opened(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode == "a" and is_full(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return own[1](path, mode, *args, **options)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "open", opened)
    code, said = run("--resume", str(copy), "-c", "num-rounds=5")
    assert code == 1
    assert error_line(said).startswith(
        f"Error: Cannot write {copy / file}: No space left on device."
    )
    assert f"fedul-flwr run --resume {copy}" in said
    monkeypatch.undo()
    code, said = run("--resume", str(copy))
    assert code == 0, said
    assert_same_run(copy, whole)


class _Killed(BaseException):
    """Stands for the end of a process: nothing after it is written."""


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process "die" at its write ``number``, of a line half.

    A write is a file that gets its name, a line that is added, a file that is deleted.
    """
    writes, lock = count(), Lock()

    def dies() -> bool:
        with lock:
            return next(writes) >= number

    def before(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if dies():
                raise _Killed
            return own(*args, **options)

        return call

    def append(path: Path, line: str) -> None:
        if dies():
            if next(writes) == number + 1:  # the first write that fails
                path.write_text(path.read_text() + line[:20])
            raise _Killed
        own(path, line)

    own = run_files.append_line
    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, before(getattr(Path, name)))
    monkeypatch.setattr(run_files, "append_line", append)


def measured(directory: Path) -> list[Any]:
    """What a run ends with; not its traffic, of which the killed process had a part."""
    lines = [(line["round"], line["loss"], line["validation_loss"]) for line in metrics(directory)]
    return [*lines, summary(directory)["best_round"], summary(directory)["test_error"]]


@pytest.mark.parametrize(
    "kind", [{"base": "fedadam"}, {"base": "local", "evaluate": "local"}], ids=str
)
def test_given_a_run_killed_at_any_write_then_it_continues_as_one_that_nothing_broke(
    kind: dict[str, str], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors, so that clients pool means and scales; FedAdam, so that the server has a state."""
    plan = {"dataset": "wine", "method": "supervised", "model": "linear"}
    config = settings(**plan, **kind, num_rounds=2, local_epochs=1)
    record = Recorder.record

    def at_once(recorder: Recorder, *args: Any, **options: Any) -> None:
        record(recorder, *args, **options)
        recorder.wait()  # the evaluation is as early as it can be

    monkeypatch.setattr(Recorder, "record", at_once)
    monkeypatch.setattr(plots, "draw_plots", lambda run, folder: [])
    whole = train(config, 2)
    begun = 0
    for number in count():
        run = tmp_path / f"killed-{number}"
        with monkeypatch.context() as mortal, suppress(_Killed):
            killed_at(number, mortal)
            train(config.model_copy(update={"output": str(run)}), 2)
        if (run / "plots").exists():
            break
        if (run / "config.json").exists():
            begun += 1
            assert measured(resume(run, 2)) == measured(whole)
            assert_same_arrays(last_model(run), last_model(whole))
    assert (run / "model-card.md").exists()
    assert begun > 10
