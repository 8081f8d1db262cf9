"""Settings resolved against a directory, under the names of the version before, and documented."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from docs.hooks.settings import settings_page
from fedul_flwr.config.method_settings import LabelSettings
from fedul_flwr.config.run_config import LAST_MODEL, default_flat, resolve
from fedul_flwr.config.sections import FedProxSettings
from tests.support.given_labels_method import GIVEN_METHOD
from tests.support.refusals import refuses

REPOSITORY = Path(__file__).resolve().parents[2]


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for text, path in {
        "pictures": tmp_path / "pictures",
        "./missing": tmp_path / "missing",
        "../up": tmp_path.parent / "up",
        "~/data": tmp_path / "home" / "data",
        "/abs/./data": Path("/abs/data"),
    }.items():
        assert resolve({"dataset": text}, tmp_path).dataset == str(path)
        assert resolve({"client-data": text}, tmp_path).client_data == str(path)
        split = resolve({"method": GIVEN_METHOD, "labels.split": text}, tmp_path)
        assert split[LabelSettings].split == str(path)
        assert resolve({"start-from": text}, tmp_path).start_from == str(path)
    # Names of data sets stay, whatever lies there.
    (tmp_path / "digits").mkdir()
    for name in ("digits", "ylecun/mnist", "owner/name:config"):
        assert resolve({"dataset": name}, tmp_path).dataset == name
    assert resolve({}, tmp_path).start_from == ""
    pretrained = {"start-from": "torchvision", "model": "torchvision:resnet18"}
    assert resolve(pretrained, tmp_path).start_from == "torchvision"
    assert resolve({}, tmp_path).client_data == ""
    unsplit = resolve({"method": GIVEN_METHOD}, tmp_path)[LabelSettings]
    assert unsplit.split == ""
    assert resolve({"output": "out/here"}, tmp_path).output == str(tmp_path / "out" / "here")


@pytest.mark.parametrize(
    ("dataset", "start"),
    [("digits", "fedul-digits-"), ("ylecun/mnist", "fedul-mnist-"), ("a/b:c", "fedul-b.c-")],
)
def test_results_lie_in_a_folder_of_the_runs_name(tmp_path: Path, dataset: str, start: str) -> None:
    output = Path(resolve({"dataset": dataset}, tmp_path).output)
    assert output.parent == tmp_path / "runs"
    assert re.fullmatch(re.escape(start) + r"\d{8}-\d{6}", output.name)


def test_a_directory_that_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert resolve({"output": "run"}, tmp_path).output == str(tmp_path / "run")
    (tmp_path / "run" / LAST_MODEL).touch()
    with refuses("run-exists"):
        resolve({"output": "run"}, tmp_path)


# Resuming


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Directory of a run of 5 rounds whose settings are not the defaults."""
    directory = tmp_path / "runs" / "one"
    directory.mkdir(parents=True)
    started = {"num-rounds": 5, "learning-rate": 0.5, "base": "fedprox", "seed": 9}
    config = resolve({**started, "fedprox.proximal-mu": 0.7, "output": str(directory)}, tmp_path)
    saved = {key: value for key, value in config.to_flat().items() if key != "resume"}
    (directory / "config.json").write_text(json.dumps({"settings": saved}))
    (directory / LAST_MODEL).touch()
    return directory


def test_a_resumed_run_has_the_settings_it_began_with(interrupted: Path, tmp_path: Path) -> None:
    config = resolve({"resume": "runs/one"}, tmp_path)
    assert (config.num_rounds, config.learning_rate, config.seed) == (5, 0.5, 9)
    assert config[FedProxSettings].proximal_mu == 0.7
    assert (config.resume, config.output) == (str(interrupted), str(interrupted))
    # Flower hands over every key, with its default where the user said nothing.
    assert resolve({**default_flat(), "resume": str(interrupted)}, tmp_path) == config


def test_only_the_number_of_rounds_may_change(interrupted: Path, tmp_path: Path) -> None:
    assert resolve({"resume": "runs/one", "num-rounds": 8}, tmp_path).num_rounds == 8
    for key, value in {"learning-rate": 0.1, "fedul.num-sets": 11, "base": "fedadam"}.items():
        with refuses("setting-fixed-by-run", match=key):
            resolve({"resume": "runs/one", key: value}, tmp_path)
    again = {"resume": "runs/one", "learning-rate": 0.5, "output": str(interrupted)}
    assert resolve(again, tmp_path).learning_rate == 0.5  # asked for what it has


def test_resuming_elsewhere_or_from_nothing_is_refused(interrupted: Path, tmp_path: Path) -> None:
    with refuses("settings-contradict"):
        resolve({"resume": "runs/one", "output": str(tmp_path / "two")}, tmp_path)
    with refuses("run-missing"):
        resolve({"resume": "runs/two"}, tmp_path)
    (interrupted / "config.json").write_text("{broken")
    with refuses("file-syntax"):
        resolve({"resume": "runs/one"}, tmp_path)


def test_a_run_resumes_with_the_settings_file_it_was_started_with(tmp_path: Path) -> None:
    started = {"dataset": "./pictures", "client-data": "systems", "start-from": "before"}
    started["output"] = "run"
    config = resolve(started, tmp_path)
    Path(config.output).mkdir()
    saved = {key: value for key, value in config.to_flat().items() if key != "resume"}
    (tmp_path / "run" / "config.json").write_text(json.dumps({"settings": saved}))
    resumed = resolve({**started, "resume": "run"}, tmp_path)
    assert resumed.to_flat() == {**config.to_flat(), "resume": config.output}
    with refuses("setting-fixed-by-run", match="start-from"):
        resolve({**started, "start-from": "other", "resume": "run"}, tmp_path)


# Documents


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, dict)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return flat


def test_pyproject_holds_every_default() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    found = flatten(project["tool"]["flwr"]["app"]["config"])
    assert found.pop("num-server-rounds") == 0  # Flower's name of num-rounds
    expected = default_flat()
    assert found == expected
    # 0 == 0.0 == False, but Flower keeps the type of the default.
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in expected.items()
    }


def test_docs_list_every_setting() -> None:
    page = (REPOSITORY / "docs" / "settings.md").read_text()
    assert page == settings_page(), "run `make docs`"
    for key in default_flat():
        assert page.count(f"| `{key}` |") == 1
