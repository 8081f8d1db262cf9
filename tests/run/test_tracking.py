import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.run import tracking
from fedul_flwr.run.callbacks import Callbacks
from fedul_flwr.run.tracking import Tracking, refuse_missing, tools
from tests.support.refusals import refuses
from tests.support.runs import train
from tests.support.synthetic_results import write_json, write_run

SUMMARY = {"rounds": 2, "test_error": 3.5, "errors": {"xclp": 4.0}, "test_prior": [0.1, 0.9]}


@pytest.fixture(autouse=True)
def _no_store_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", *tracking._IN_HASTE):
        monkeypatch.delenv(name, raising=False)


def line(step: int, error: float) -> dict[str, Any]:
    return {"round": step, "test_error": error, "bytes_up": 10 * step, "heldout_loss": None}


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def finished(path: Path) -> Run:
    """A run with pictures, all black, of its rounds and of its clients, and their summary."""
    write_run(path, rounds=2, outcome=SUMMARY)
    (path / "plots").mkdir()
    for name in ("summary", "error", "loss", "time_traffic", "priors"):
        Image.new("RGB", (4, 3)).save(path / "plots" / f"{name}.png")
    return Run.read(path)


@contextmanager
def tracked(names: str, run: Run) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A run that is tracked; yields what adds the line of a round."""
    copies, lines = Callbacks(), []
    copies.add(*(Tracking(tool, run) for tool in tools(names)))

    def add_round(line: dict[str, Any]) -> None:
        lines.append(line)
        copies.recorded(lines)

    try:
        yield add_round
        copies.end(run.outcome.entries)
    except BaseException:
        copies.failed()
        raise


def ends_early(tool: str, directory: Run, *lines: dict[str, Any]) -> None:
    def run() -> None:
        with tracked(tool, directory) as add_round:
            for known in lines:
                add_round(known)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()


def test_tensorboard_holds_what_the_run_recorded(tmp_path: Path) -> None:
    directory = finished(tmp_path)
    with tracked("tensorboard", directory) as add_round:
        add_round(line(1, 8.0))
        add_round(line(2, 3.5))
    found = scalars(tmp_path)
    assert found["test_error"] == [(1, 8.0), (2, 3.5)]
    assert found["bytes_up"] == [(1, 10.0), (2, 20.0)]
    assert found["summary/test_error"] == [(2, 3.5)]
    assert found["summary/errors.xclp"] == [(2, 4.0)]
    # What was not measured, lists, and words are no figures.
    assert not {"heldout_loss", "round", "summary/test_prior", "summary/method"} & set(found)


def test_mlflow_goes_on_in_the_same_run(tmp_path: Path) -> None:
    directory = finished(tmp_path / "table" / "seed-0")
    ends_early("mlflow", directory, line(1, 8.0))
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{directory.path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedul-flwr")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    with tracked("mlflow", directory) as add_round:
        add_round(line(2, 3.5))
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "table/seed-0"
    settings = json.loads((directory.path / "config.json").read_text())["settings"]
    assert run.data.params == {name: str(value) for name, value in settings.items()}
    history = client.get_metric_history(run.info.run_id, "test_error")
    assert [(metric.step, metric.value) for metric in history] == [(1, 8.0), (2, 3.5)]
    assert run.data.metrics["summary/test_error"] == 3.5
    assert "summary/test_prior" not in run.data.metrics
    pictures = [Path(file.path).name for file in client.list_artifacts(run.info.run_id, "plots")]
    assert sorted(pictures) == ["error.png", "loss.png", "summary.png", "time_traffic.png"]
    # A first round begins another run in the same place.
    with tracked("mlflow", directory) as add_round:
        add_round(line(1, 9.0))
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_pictures_of_a_run_that_labels_stay_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Path] = []

    class Seen(_Broken):
        def add(self, step: int, numbers: Mapping[str, float]) -> None:
            pass

        def end(self, succeeded: bool, pictures: Sequence[Path]) -> None:
            sent.extend(pictures)

    monkeypatch.setattr(tracking, "_TRACKERS", {"mlflow": Seen})
    with tracked("mlflow", finished(tmp_path / "trained")):
        pass
    directory = finished(tmp_path / "labeled")
    (directory.path / "metrics.jsonl").unlink()
    write_json(directory.path / "summary.json", {"test_error": 3.5})
    with tracked("mlflow", Run.read(directory.path)):
        pass
    names = {path.relative_to(tmp_path).parts[0] for path in sent}
    assert names == {"trained"}


class _Broken:
    def __init__(self, *_: object) -> None:
        self.added = 0

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        if step > 1:
            raise ConnectionError("https://user:password@example.org is away")
        self.added += 1

    def end(self, succeeded: bool, pictures: Sequence[Path]) -> None:
        raise AssertionError("a tool that failed is left alone")


def test_a_tool_that_fails_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "_TRACKERS", {**tracking._TRACKERS, "mlflow": _Broken})
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with (
        caplog.at_level(logging.WARNING, "flwr"),
        tracked("tensorboard,mlflow", finished(tmp_path)) as add_round,
    ):
        for step in (1, 2, 3):
            add_round(line(step, 5.0))
    said = [record.getMessage() for record in caplog.records]
    # Once, and without the address.
    assert said == ["Tracking with mlflow stops (ConnectionError); the run goes on."]
    assert [step for step, _ in scalars(tmp_path)["test_error"]] == [1, 2, 3]


def test_a_tool_that_is_not_installed(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)  # type: ignore[arg-type]
    refuse_missing("none")
    refuse_missing("tensorboard")
    config = settings(tracking="tensorboard,mlflow")
    with refuses("package-missing", setting="tracking"):
        train(config, 2)
    assert not Path(config.output).exists()


def test_weights_and_biases_has_an_offline_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    directory = finished(tmp_path / "run")
    with tracked("wandb", directory) as add_round:
        add_round(line(1, 9.0))
        add_round(line(2, 4.5))
    wandb.teardown()  # its process writes the file, which a program waits for when it ends
    (file,) = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    content = file.read_bytes()
    for told in (b"test_error", b"bytes_up", b"summary/errors.xclp", b"fedul-flwr"):
        assert told in content
    assert b"requirements.txt" not in content
    pictures = sorted(path.name.partition("_2_")[0] for path in file.parent.rglob("*.png"))
    assert pictures == ["error", "loss", "summary", "time_traffic"]  # priors show clients' points
