"""The command line with the launcher replaced: parsing, progress, exit codes."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.errors import UserError

runner = CliRunner()


class FakeConfig(SimpleNamespace):
    tracking = "none"

    def model_copy(self, update: dict[str, Any]) -> FakeConfig:
        return FakeConfig(**{**vars(self), **update})

    def to_flat(self) -> dict[str, Any]:
        return {"method": self.method, "output": self.output}


class Stage:
    """What the commands call, replaced; a test says what the run writes and how it ends."""

    def __init__(self) -> None:
        self.overrides: list[dict[str, Any]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.summaries: list[Path] = []
        self.reason = ""
        self.write: Callable[[Path], None] = lambda output: rounds(output, 1, 2)

    def resolve(self, overrides: dict[str, Any], base_dir: Path) -> FakeConfig:
        self.overrides.append(overrides)
        if "bad" in overrides:
            raise UserError("Unknown setting 'bad'.")
        return FakeConfig(
            method=overrides.get("method", "fedul"),
            dataset="digits",
            model="cnn-small",
            num_rounds=2,
            output=str((base_dir / overrides.get("output", "out")).resolve()),
            resume=overrides.get("resume", ""),
        )

    def run_on_ray(self, config: FakeConfig, *how: Any) -> str:
        self.calls.append(how)
        how[-1].write_text("a log line\n")
        self.write(Path(config.output))
        return self.reason


def rounds(output: Path, *steps: int) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with (output / "metrics.jsonl").open("a") as file:
        for step in steps:
            file.write(
                json.dumps({"round": step, "test_error": 8.0 / max(step, 1), "seconds": 1.5}) + "\n"
            )


ON_RAY = ["run", "--engine", "ray"]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    stage = Stage()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedul_flwr.config.run_config.resolve", stage.resolve)
    monkeypatch.setattr("fedul_flwr.engine.flower_simulation.run_on_ray", stage.run_on_ray)
    monkeypatch.setattr("fedul_flwr.engine.simulate.check_start", lambda config, clients: None)
    for module in ("engine.simulate", "cli.simulated_run"):
        monkeypatch.setattr(f"fedul_flwr.{module}.load_early", lambda: None)
    summary = types.ModuleType("summary")
    summary.print_summary = stage.summaries.append  # type: ignore[attr-defined]
    summary.print_comparison = lambda outputs, seconds: stage.summaries.append(outputs)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedul_flwr.results.facts", summary)
    return stage


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {}),
        (["a=1 b=2.5", "c=true"], {"a": 1, "b": 2.5, "c": True}),
        (["fedul.num-sets=20", "fedul.num-sets = 5"], {"fedul.num-sets": 5}),
        (["FILE", "num-rounds=7"], {"num-rounds": 7, "fedul.num-sets": 3}),
        (["num-rounds=7", "FILE"], {"num-rounds": 9, "fedul.num-sets": 3}),
        (["a=8x8x1 b=0.5,0.5 c=~/x"], {"a": "8x8x1", "b": "0.5,0.5", "c": "~/x"}),
    ],
)
def test_overrides(values: list[str], expected: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("num-rounds = 9\n[fedul]\nnum-sets = 3\n")
    assert parse_overrides([str(file) if v == "FILE" else v for v in values]) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a=[1", "quotes"),
        ("just-a-word", "key=value"),
        ("a=1 b", "from 'b' on"),
        ("absent.toml", "cannot be read"),
        ("a=[1,2]", "a number or text"),
    ],
)
def test_overrides_refused(value: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_overrides([value])


def test_failure_tells_flowers_reason(stage: Stage, tmp_path: Path) -> None:
    stage.reason = "ValueError: broken"
    result = runner.invoke(app, ON_RAY)
    assert result.exit_code == 1
    assert "Error: ValueError: broken\n" in result.stderr
    assert str(tmp_path / "out" / "flower.log") in result.stderr
    assert "Traceback" not in result.output
    assert stage.summaries == []
    assert (tmp_path / "out" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "-c", "bad=1"], 1),
        (["run", "--num-supernodes", "0"], 2),
        (["run", "--nonsense"], 2),
        (["--version"], 0),
        (["--help"], 0),
    ],
)
def test_exit_codes(stage: Stage, arguments: list[str], code: int) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == code, result.output
    if code == 1:
        assert result.stderr == "Error: Unknown setting 'bad'.\n"


def test_ctrl_c_is_130(stage: Stage) -> None:
    def write(output: Path) -> None:
        raise KeyboardInterrupt

    stage.write = write
    assert runner.invoke(app, ON_RAY).exit_code == 130


@pytest.fixture
def processes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the pool of processes was asked to run; it writes what the stage's runs write."""
    calls: list[tuple[Any, ...]] = []

    def run_in_processes(config: FakeConfig, *more: Any) -> None:
        calls.append((config, *more))
        stage.write(Path(config.output))

    module = types.ModuleType("processes")
    module.run_in_processes = run_in_processes  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedul_flwr.engine.processes", module)
    return calls


def test_given_a_run_that_cannot_begin_then_nothing_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(config: FakeConfig, clients: int) -> None:
        raise UserError("No such data set.")

    monkeypatch.setattr("fedul_flwr.engine.simulate.check_start", refuse)
    result = runner.invoke(app, ON_RAY)
    assert (result.exit_code, result.stderr) == (1, "Error: No such data set.\n")
    assert stage.calls == []
    assert not (tmp_path / "out").exists()


def test_demo_has_a_ceiling(stage: Stage, processes: list[tuple[Any, ...]], tmp_path: Path) -> None:
    stale = tmp_path / "runs" / "demo" / "fedul" / "stale.png"
    stale.parent.mkdir(parents=True)
    stale.touch()

    def write(output: Path) -> None:
        rounds(output, 1, 2)
        (output / "config.json").write_text('{"settings": {"method": "x"}, "data": {}}')

    stage.write = write
    result = runner.invoke(app, ["demo", "--num-supernodes", "4"])
    assert result.exit_code == 0, result.output
    assert [(config.method, clients) for config, clients, *_ in processes] == [
        ("fedul", 4),
        ("supervised", 4),
    ]
    # No label has a part in FedUL's figure, not even in which round it is of.
    assert [overrides["selection"] for overrides in stage.overrides] == ["heldout", "validation"]
    assert not stale.exists()
    demo = tmp_path / "runs" / "demo"
    assert stage.summaries == [{name: demo / name for name in ("fedul", "supervised")}]
