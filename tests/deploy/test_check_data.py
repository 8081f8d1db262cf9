"""``fedul-flwr deploy check``: data that it refuses, by what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.owner_files import LABELS, PRIORS, write_folders, write_points, write_sets

SETS, POINTS = "fedul", "xclp"


@pytest.mark.parametrize(
    ("expected", "method", "name", "text", "message"),
    [
        ("priors", SETS, "priors.csv", None, "priors.csv is missing; it names the sets"),
        ("priors", SETS, "priors.csv", "", "must begin with the header 'set,sound,ill'"),
        (
            "priors",
            SETS,
            "priors.csv",
            PRIORS.replace("0.7", "0.6"),
            "'january' do not sum to 1: ",
        ),
        ("priors", SETS, "priors.csv", b"set,sound,ill\n\x81,1,0\n", "fit no encoding"),
        ("classes", SETS, "priors.csv", PRIORS.replace("ill", "well"), "are sound, well; they"),
        ("format", SETS, "priors.csv", PRIORS + "march,1,0\n", "holds no set 'march'"),
        ("format", SETS, "january.npz", "no archive", "january.npz cannot be read as an .npz"),
        ("labels", POINTS, "labels.csv", "", "must begin with the header 'name,label'"),
        ("labels", POINTS, "labels.csv", LABELS + "12,ill\n", "names '12', which .* does not hold"),
        ("labels", POINTS, "labels.csv", b"name,label\n\x81,ill\n", "fit no encoding"),
        ("classes", POINTS, "labels.csv", LABELS + "4,cyst\n", "gives '4' the label 'cyst'"),
        ("format", POINTS, "scans.npz", "no archive", "scans.npz cannot be read as an .npz"),
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
