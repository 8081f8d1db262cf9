"""``run --federation``: exit code, reason and results, with Flower's program replaced."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.engine import flower_run
from fedul_flwr.engine.simulate import failure
from fedul_flwr.errors import UserError

runner = CliRunner()
SETTINGS = ["-c", "dataset=none class-names=a,b input-shape=8x8x1 model=mlp num-rounds=2"]


class FakeFlower:
    """Flower's program ``flwr``: a test says what the run writes, and how it ends."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.statuses = [("finished:completed", "")]
        self.write: Callable[[Path], None] = lambda output: None
        self.output = Path()

    def ask(self, *arguments: str) -> dict[str, Any]:
        self.asked.append(arguments)
        if arguments[0] == "run":
            settings = Path(arguments[arguments.index("--run-config") + 1]).read_text()
            [line] = [x for x in settings.splitlines() if x.startswith("output = ")]
            self.output = Path(json.loads(line.partition(" = ")[2]))
            return {"success": True, "run-id": 7}
        if arguments[0] == "list":
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            if not status[0]:
                raise UserError("no answer")
            return {"runs": [{"status": status[0], "status-details": status[1]}]}
        return {"success": True}

    def lines(self, *arguments: str) -> Iterator[str]:
        self.asked.append(arguments)
        self.write(self.output)
        yield "a log line\n"

    def close(self) -> None:
        self.asked.append(("close",))


def finished(output: Path) -> None:
    row = '{"round": %d, "surrogate_loss": 0.5, "seconds": 1.0}\n'
    (output / "metrics.jsonl").write_text("".join(row % number for number in (1, 2)))
    (output / "summary.json").write_text("{}")


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeFlower:
    fake = FakeFlower()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr("fedul_flwr.engine.flower_run.FlowerProgram", lambda environment: fake)
    monkeypatch.setattr(flower_run.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(
        "fedul_flwr.results.facts.print_summary", lambda place: print("Summary of", place)
    )
    (tmp_path / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
        '[superlink.consortium]\naddress = "127.0.0.1:1"\n'
    )
    return fake


def run(*options: str) -> Any:
    return runner.invoke(app, ["run", "--federation", "consortium", *SETTINGS, *options])


def test_given_a_completed_run_then_there_is_a_summary(flower: FakeFlower, tmp_path: Path) -> None:
    flower.write = finished
    result = run("--output", "here")
    assert result.exit_code == 0, result.output
    assert "round 2/2: surrogate loss 0.5000, 1.0 s" in result.stdout
    assert result.stdout.endswith(f"Summary of {tmp_path / 'here'}\n")
    started = flower.asked[0]
    assert (started[0], started[2]) == ("run", "consortium")
    assert "--federation-config" not in started  # of simulations
    assert ("log", "7", "consortium", "--stream") in flower.asked
    assert ("list", "consortium", "--run-id", "7") in flower.asked
    assert flower.asked[-1] == ("close",)
    assert (tmp_path / "here" / "flower.log").read_text() == "a log line\n"


def test_given_a_failed_run_then_its_reason_and_exit_code_1(flower: FakeFlower) -> None:
    flower.statuses = [("finished:failed", "ValueError: broken")]
    result = run("--output", "here")
    assert result.exit_code == 1
    assert "Error: ValueError: broken\n" in result.stderr
    flower.write = lambda output: (output / "error.txt").write_text("No client can take part.\n")
    assert "Error: No client can take part.\n" in run("--output", "there").stderr


def test_given_ctrl_c_then_the_run_is_stopped_and_can_be_resumed(flower: FakeFlower) -> None:
    def interrupt(arguments: object) -> bool:
        raise KeyboardInterrupt

    flower.write = finished
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedul_flwr.engine.simulate.RunProgress.poll", interrupt)
        result = run("--output", "here")
    assert result.exit_code == 130
    assert ("stop", "7", "consortium") in flower.asked
    again = f"--federation consortium --resume {flower.output} goes on with it."
    assert again in result.stderr


def test_given_a_server_that_died_after_a_round_then_the_error_says_how_to_resume(
    tmp_path: Path,
) -> None:
    why = "The SuperLink has not answered."
    where = (tmp_path / "error.txt", None, tmp_path / "flower.log", "fedul-flwr run --resume")
    assert "--resume" not in str(failure(why, *where))  # there is nothing to resume
    (tmp_path / "last.safetensors").touch()
    assert f"fedul-flwr run --resume {tmp_path} continues" in str(failure(why, *where))
    (tmp_path / "error.txt").write_text("A client failed. [client-failed]\n")
    error = failure(why, *where)
    assert error.code == "client-failed"  # the server app has said why itself
    assert "--resume" not in str(error)
