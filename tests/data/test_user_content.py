"""Files and modules of the user's own that a trial's result depends on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.run_files.parts import Summary
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.user_content import changed_content, user_content
from fedul_flwr.experiments.trial import check_unchanged, prepare_directory
from fedul_flwr.experiments.trial_plan import make_plan
from tests.support.refusals import refuses
from tests.support.runs import resume, train


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a data set and a module that imports another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "content_model.py").write_text("from content_helper import build\n")
    (tmp_path / "content_helper.py").write_text("import numpy\ndef build(shape, k): ...\n")
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        rows = "a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
        (tmp_path / "data" / f"{split}.csv").write_text(rows)
    yield tmp_path
    for name in ("content_model", "content_helper"):
        sys.modules.pop(name, None)


def config(folder: Path, **settings: object) -> RunConfig:
    return resolve({"dataset": "./data", **settings}, folder)


def test_given_the_same_content_elsewhere_then_the_digest_is_the_same(folder: Path) -> None:
    before = user_content(config(folder))
    assert set(before) == {"dataset"}
    text = (folder / "data" / "train.csv").read_bytes()
    (folder / "data" / "train.csv").write_bytes(text)  # another time, the same bytes
    assert user_content(config(folder)) == before
    (folder / "data").rename(folder / "moved")
    assert user_content(config(folder, dataset="./moved")) == before


def test_given_another_value_or_name_in_the_data_then_another_digest(folder: Path) -> None:
    file = folder / "data" / "train.csv"
    for change in (
        lambda: file.write_text(file.read_text().replace("39,", "38,")),
        lambda: file.rename(file.with_name("train2.csv")),
    ):
        before = user_content(config(folder))
        change()
        assert list(changed_content(before, user_content(config(folder)))) == ["dataset"]


def test_given_other_data_then_a_run_does_not_resume(folder: Path) -> None:
    plan = {"model": "linear", "num-rounds": 1, "fedul.num-sets": 2, "output": "./data/runs/first"}
    directory = train(config(folder, **plan), 2)
    resume(directory, 2, **{"num-rounds": 2})  # what a run writes into the folder does not count
    file = folder / "data" / "train.csv"
    file.write_text(file.read_text().replace("39,", "38,"))
    with refuses("result-of-other-settings", setting="dataset"):
        resume(directory, 2, **{"num-rounds": 3})


@pytest.mark.parametrize("name", ["content_model.py", "content_helper.py"])
def test_given_a_changed_module_then_the_digest_is_another(folder: Path, name: str) -> None:
    own = {"model": "content_model:build"}
    before = user_content(config(folder, **own))
    assert set(before) == {"dataset", "model"}
    (folder / name).write_text((folder / name).read_text() + "# changed\n")
    assert list(changed_content(before, user_content(config(folder, **own)))) == ["model"]


def test_given_a_finished_trial_and_a_changed_table_then_compare_refuses(folder: Path) -> None:
    def trial() -> tuple:  # type: ignore[type-arg]
        plan = make_plan({"a": {"method": "fedul"}}, {"dataset": "./data"}, [0], 2, folder / "out")
        return plan.trials

    (one,) = trial()
    prepare_directory(one.directory, one.definition)
    run = Run(path=one.directory)
    run.store(settings=one.config.to_flat())
    run.store(summary=Summary(status="completed", rounds=1, num_clients=2))
    check_unchanged(trial())
    file = folder / "data" / "test.csv"
    file.write_text(file.read_text().replace("39,", "38,"))
    with refuses("result-of-other-settings"):
        check_unchanged(trial())
    assert trial()[0].definition != one.definition


def test_given_a_module_in_a_folder_that_is_no_package_then_it_counts(folder: Path) -> None:
    (folder / "content_folder" / "inner").mkdir(parents=True)
    for name in ("model", "inner/helper"):
        (folder / "content_folder" / f"{name}.py").write_text("def build(shape, k): ...\n")
    model = folder / "content_folder" / "model.py"
    model.write_text("from content_folder.inner.helper import build\n")
    seen = []
    for text in ("", "# changed\n"):
        (folder / "content_folder" / "inner" / "helper.py").open("a").write(text)
        seen.append(user_content(config(folder, model="content_folder.model:build"))["model"])
    assert seen[0] != seen[1]
