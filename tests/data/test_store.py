"""What clients kept: which versions a run still needs, and that it keeps no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.run_files.store import RunDirectory
from fedul_flwr.engine.simulate import plan_rounds
from fedul_flwr.run.evaluation import Recorder
from tests.support.runs import train

Settings = Callable[..., RunConfig]


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
    RunDirectory(tmp_path).drop_client_versions(10)
    assert sorted(set(names) - set(files(tmp_path))) == [
        "clients/0/control-2.safetensors",
        "clients/0/control-9.safetensors",
        "clients/0/own-model-9.safetensors",
    ]
    RunDirectory(tmp_path / "elsewhere").drop_client_versions(10)  # where no client keeps anything


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


@pytest.mark.parametrize(
    "options",
    [
        {"method": "xclp", "xclp.num-bits": 256, "labels.labeled-clients": 0.5},
        {"method": "fedsem"},
        {"method": "pseudo-label", "base": "local", "evaluate": "local"},
    ],
    ids=lambda options: options["method"],
)
def test_after_a_round_one_version_is_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    seen: list[list[str]] = []
    record = Recorder.record

    def watch(recorder: Recorder, *arguments: Any) -> None:
        record(recorder, *arguments)
        seen.append(files(recorder.directory.path))

    monkeypatch.setattr(Recorder, "record", watch)
    base = {} if options.get("base") else {"base": "scaffold"}
    plan = {"model": "mlp", "optimizer": "sgd", "learning_rate": 0.1, "local_epochs": 1}
    plan |= {"num_rounds": 5, "fraction_train": 0.75, "semi.labels-only-rounds": 1}
    train(settings(**{**plan, **base, **options}), 4)
    assert len(seen) == 5
    for names in seen:
        kept = [name.rpartition("-")[0] for name in names]
        assert len(kept) == len(set(kept)) > 0
    assert len({name.rpartition("-")[2] for name in seen[-1]}) > 1  # not all were in round 5
