"""``fedul-flwr deploy check``: what it finds and shows, and the class of every refusal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedul_flwr.cli import app
from fedul_flwr.methods import METHODS
from tests.owners import LABELS, NO_DATA, PRIORS, write_folders, write_points, write_sets
from tests.strategies.own_method import MIRROR

CHECK = Callable[..., Any]
WHERE = 'data="ward" partition-id=1 num-partitions=3'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def check(method: str, node_config: str = WHERE, *options: str, **settings: Any) -> Any:
    told = {**NO_DATA, "method": method, **settings}
    text = " ".join(f"{key}={json.dumps(value)}" for key, value in told.items())
    return CliRunner().invoke(
        app, ["deploy", "check", "--node-config", node_config, "-c", text, *options]
    )


def ready(method: str, *arguments: str, **settings: Any) -> list[str]:
    done = check(method, *arguments, **settings)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("\nReady.\n")
    return [line.strip() for line in done.stdout.splitlines()]


def refused(expected: str, method: str, *arguments: str, **settings: Any) -> str:
    """The report before a refusal; it begins with its class and is one line."""
    done = check(method, *arguments, **settings)
    (line,) = [said for said in done.stderr.splitlines() if said.startswith(f"{expected}: ")]
    assert (done.exit_code, done.stderr.endswith(f"{line}\n")) == (1, True)
    assert "Ready." not in done.stdout
    return line.removeprefix(f"{expected}: ")


# What is found, and what would be sent


def test_unlabeled_sets(here: Path) -> None:
    write_sets(here / "ward")
    lines = ready("fedul", **{"fedul.share-priors": True, "test-prior": "sets"})
    # Singular values of [[.7, .3], [.2, .8]]: s1² + s2² = 1.26 and s1·s2 = |det| = 0.5, so
    # (s1/s2)² = (0.63 + √(0.63² − 0.25)) / (0.63 − √(0.63² − 0.25)) = 2.0266².
    assert lines[1:5] == [
        "30 points in 2 sets, 2 classes",
        "set january: 20 points",
        "set february: 10 points",
        "class priors: rank 2, condition number 2.03",
    ]
    for line in (
        "partition-id = 1 (8 bytes)",
        "num-sets = 2 (8 bytes)",
        "priors = [0.7, 0.3, 0.2, 0.8] (32 bytes)",
        "set-sizes = [20, 10] (16 bytes)",
        # 20 · (.7, .3) + 10 · (.2, .8)
        "class-masses = [16.0, 14.0] (16 bytes)",
    ):
        assert line in lines
    # 64·128 + 128, 128·128 + 128 and 128·2 + 2 weights of 4 bytes, and 6 headers of 128.
    assert "arrays: 6 arrays, at most 101,128 bytes" in lines
    assert any(line.endswith("(evaluate)") for line in lines)  # held-out losses: no data at server
    assert not (here / "runs").exists()


def test_what_is_not_asked_for_is_not_sent(here: Path) -> None:
    write_sets(here / "ward")
    said = "\n".join(ready("fedul"))
    assert "0.7" not in said
    assert "january" not in said.partition("Would leave")[2]


def test_a_deficient_rank_is_a_warning_and_strictly_a_refusal(here: Path) -> None:
    folder = write_sets(here / "ward")
    (folder / "priors.csv").write_text("set,sound,ill\njanuary,1,0\nfebruary,1,0\n")
    lines = ready("fedul")
    warning = "warning: class priors have rank 1 of 2 (absent: ill): the guarantee of Theorem 4"
    assert any(line.startswith(warning) for line in lines)
    assert "condition-number = inf (8 bytes)" in lines
    told = refused("rank", "fedul", **{"fedul.strict-rank": True})
    assert told == "Client 1 cannot take part: its priors have rank 1, below 2 classes."


@pytest.mark.parametrize("write", [write_points, write_folders])
@pytest.mark.parametrize("method", ["xclp", "fedmatch", "labels-only"])
def test_points_of_which_some_have_a_label(
    here: Path, method: str, write: Callable[[Path], Path]
) -> None:
    write(here / "ward")
    lines = ready(method)
    counts = (12, 2, 1) if write is write_points else (7, 4, 2)
    assert lines[1:4] == [
        f"{counts[0]} points, {counts[1]} with a label",
        f"class sound: {counts[2]} with a label",
        f"class ill: {counts[2]} with a label",
    ]
    assert f"num-labelled = {counts[1]} (8 bytes)" in lines
    assert ("(xclp-compare)" in "\n".join(lines)) == (method == "xclp")
    assert any(line.startswith("psi: 6 arrays") for line in lines) == (method == "fedmatch")


@pytest.mark.parametrize(
    ("secure", "shown", "hidden"),
    [("plaintext", "codes", "own-distances"), ("rlwe", "own-distances", "codes")],
)
def test_backends_of_xclp(here: Path, secure: str, shown: str, hidden: str) -> None:
    write_points(here / "ward")
    lines = ready("xclp-predict", **{"xclp.secure": secure})
    assert shown in lines
    assert hidden not in lines
    assert not any("(train)" in line for line in lines)


def test_points_without_any_label(here: Path) -> None:
    write_points(here / "ward", "name,label\n")
    warning = "warning: no point has a label, it learns from unlabeled ones alone"
    assert warning in ready("xclp")


def test_labels_of_all_points(here: Path) -> None:
    folder = write_folders(here / "ward")
    told = refused("labels", "supervised")
    assert told.startswith("3 of the 7 points in ward have no label; method 'supervised' learns")
    shutil.rmtree(folder / "unlabeled")
    assert "class ill: 2 points" in ready("supervised")


@pytest.mark.parametrize("method", METHODS)
def test_every_method(here: Path, method: str) -> None:
    sets = METHODS[method].data == "unlabeled-sets"
    write_sets(here / "ward") if sets else write_folders(here / "ward")
    if method == "supervised":
        shutil.rmtree(here / "ward" / "unlabeled")
    ready(method)


def test_a_method_of_ones_own_that_does_not_say_all(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.strategies.own_method import MirrorClient

    def introduce(self: Any) -> dict[str, Any]:
        return {**super(MirrorClient, self).introduce(), "mood": "x" * 99}

    monkeypatch.setattr(MirrorClient, "introduce", introduce)
    write_sets(here / "ward")
    assert MIRROR.name == "mirror"
    lines = ready("tests.strategies.own_method:MIRROR")
    assert f"not declared by the method: mood = '{'x' * 58}… (99 bytes)" in lines


def test_shape_and_classes_of_a_data_set_elsewhere(here: Path) -> None:
    write_sets(here / "ward")
    settings = {"dataset": "far/away", "class-names": "", "image-shape": ""}
    told = refused("settings", "fedul", **settings)
    assert told == (
        "Setting dataset = 'far/away' is not on this machine: --class-names and --image-shape, "
        "which the server's side can tell, have to say what it is like."
    )
    options = ("--class-names", "sound,ill", "--image-shape", "8x8x1")
    assert "30 points in 2 sets, 2 classes" in ready("fedul", WHERE, *options, **settings)
    wrong = ("--class-names", "sound,ill", "--image-shape", "8x8")
    assert "must be height x width x ch" in refused("settings", "fedul", WHERE, *wrong, **settings)
    assert "dataset = 'none' the settings" in refused("settings", "fedul", WHERE, *options)
    here_too = {**settings, "dataset": "digits"}
    told = refused("classes", "fedul", **here_too)
    assert "priors.csv are sound, ill; they must be exactly 0, 1, 2" in told


# Refusals


@pytest.mark.parametrize(
    ("node_config", "message"),
    [
        ('data=ward"', "--node-config 'data=ward\"' cannot be read: it takes key=value pairs"),
        ("ward", "--node-config 'ward' cannot be read"),
        ('data="ward" partition-id = 0', "without spaces around ="),
        ("no.toml", "--node-config 'no.toml' cannot be read"),
        ("partition-id=0", "Node config data is missing: it names the folder"),
        ('dta="ward"', "Unknown node config 'dta'; did you mean 'data'?"),
        ('data="ward" partition-id="0"', "partition-id = '0': must be a whole number."),
        ('data="ward" partition-id=3 num-partitions=3', "must be below num-partitions = 3"),
        ('data="ward" known-labels="x.csv"', "known-labels = 'x.csv': method 'fedul' learns from"),
    ],
)
def test_node_configs_that_are_refused(here: Path, node_config: str, message: str) -> None:
    write_sets(here / "ward")
    assert message in refused("settings", "fedul", node_config)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedull", {}, "Setting method = 'fedull': must be one of"),
        ("fedul", {"num-rounds": 0}, "Setting num-rounds = 0: must be at least 1."),
        ("fedul", {"numrounds": 1}, "Unknown setting 'numrounds'; did you mean 'num-rounds'?"),
        ("fedul", {"test-prior": "0.2,0.3,0.5"}, "Setting test-prior has 3 entries; the data set"),
        ("fedul", {"client-data": "ward"}, "Setting client-data is for simulations; an owner's"),
        ("xclp", {"test-prior": "sets"}, "'xclp' has no transition that takes class priors"),
        ("fedul", {"selection": "validation"}, "Setting selection = 'validation' needs labelled"),
        ("fedul", {"model": "cnn-tiny"}, "model = 'cnn-tiny'"),
    ],
)
def test_settings_that_are_refused(
    here: Path, method: str, settings: dict[str, Any], message: str
) -> None:
    write_sets(here / "ward")
    assert message in refused("settings", method, **settings)


SETS, POINTS = "fedul", "xclp"


@pytest.mark.parametrize(
    ("expected", "method", "name", "text", "message"),
    [
        ("priors", SETS, "priors.csv", None, "priors.csv is missing; it names the sets"),
        ("priors", SETS, "priors.csv", "", "must begin with the header 'set,sound,ill'"),
        ("priors", SETS, "priors.csv", "set,sound,ill\n", "names no set; one row per set"),
        ("priors", SETS, "priors.csv", PRIORS + "january,1,0\n", "names the set 'january' more"),
        ("priors", SETS, "priors.csv", PRIORS.replace("0.7", "x"), "holds 'x'; priors must be"),
        ("priors", SETS, "priors.csv", PRIORS.replace("0.7,", ""), "has 1 values; it needs 2"),
        ("priors", SETS, "priors.csv", PRIORS.replace("0.7", "0.6"), "'january' do not sum to 1."),
        ("priors", SETS, "priors.csv", PRIORS.replace("0.7,0.3", "2,-1"), "has a negative or non"),
        ("priors", SETS, "priors.csv", b"set,sound,ill\n\xff,1,0\n", "as a CSV file in UTF-8"),
        ("classes", SETS, "priors.csv", PRIORS.replace("ill", "well"), "are sound, well; they"),
        ("format", SETS, "priors.csv", PRIORS + "march,1,0\n", "holds no set 'march'"),
        ("format", SETS, "april/x.png", "no image", "april is not a set that priors.csv names"),
        ("format", SETS, "january.npz", "no archive", "january.npz cannot be read as an .npz"),
        ("format", SETS, "january.npz", None, "holds no set 'january'"),
        ("labels", POINTS, "labels.csv", "", "must begin with the header 'name,label'"),
        ("labels", POINTS, "labels.csv", LABELS + "4\n", "The row of '4' in .* has 1 values"),
        ("labels", POINTS, "labels.csv", LABELS + "12,ill\n", "names '12', which .* does not hold"),
        ("labels", POINTS, "labels.csv", LABELS + "0,ill\n", "names '0' more than once"),
        ("labels", POINTS, "labels.csv", b"name,label\n\xff,ill\n", "as a CSV file in UTF-8"),
        ("classes", POINTS, "labels.csv", LABELS + "4,cyst\n", "gives '4' the label 'cyst'"),
        ("format", POINTS, "scans.npz", "no archive", "scans.npz cannot be read as an .npz"),
        ("format", POINTS, "scans.npz", None, "ward holds no images; one or more are needed"),
        ("format", POINTS, "notes.txt", "x", "holds scans.npz and notes.txt; besides labels.csv"),
    ],
)
def test_data_that_are_refused(
    here: Path, expected: str, method: str, name: str, text: str | bytes | None, message: str
) -> None:
    folder = write_sets(here / "ward") if method == SETS else write_points(here / "ward")
    file = folder / name
    if text is None:
        file.unlink()
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = refused(expected, method)
    for part in message.split(".*"):
        assert part.strip() in found


def test_too_few_sets_and_an_empty_one(here: Path) -> None:
    folder = write_sets(here / "ward")
    np.savez(folder / "january.npz", images=np.empty((0, 8, 8), np.uint8))
    assert "january.npz holds no images; one or more" in refused("format", "fedul")
    (folder / "january.npz").unlink()
    (folder / "priors.csv").write_text("set,sound,ill\nfebruary,0.2,0.8\n")
    assert "it has 1 sets, fewer than the 2 classes" in refused("rank", "fedul")
    assert "set february: 10 points" in ready("fedllp")  # one is enough


def test_no_folder_and_formats_that_do_not_fit(here: Path) -> None:
    assert "data folder ward does not exist" in refused("format", "fedul")
    assert "data folder ward does not exist" in refused("format", "xclp")
    write_sets(here / "ward")
    told = refused("format", "fedul", WHERE + ' format="files"')
    assert told == "Node config format = 'files': method 'fedul' reads 'sets'."
    told = refused("format", "xclp", WHERE + ' format="sets"')
    assert told.endswith("method 'xclp' reads 'files' or 'class-folders'.")
    told = refused("format", "xclp", WHERE + ' format="class-folders"')
    assert "lies beside the class folders" in told


def test_two_answers_to_what_the_labels_are(here: Path) -> None:
    folder = write_folders(here / "ward")
    (folder / "labels.csv").write_text("name,label\nunlabeled/0.png,ill\n")
    assert "gives labels too; remove one of them" in refused("labels", "xclp")
    assert "7 points, 1 with a label" in ready("xclp", WHERE + ' format="files"')
    (folder / "labels.csv").rename(here / "known.csv")
    assert "7 points, 4 with a label" in ready("xclp")
    known = WHERE + ' known-labels="known.csv" format="files"'
    assert "7 points, 1 with a label" in ready("xclp", known)


def test_where_labels_cannot_be_written(here: Path) -> None:
    write_points(here / "ward")
    told = refused("settings", "xclp-predict", WHERE + ' labels="none/labels.csv"')
    assert told.startswith("Labels cannot be written to none: it must be a folder that")
    ready("xclp-predict", WHERE + ' labels="labels.csv"')
