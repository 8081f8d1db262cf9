"""``fedul-flwr deploy check``: data that it refuses, by what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.owner_files import LABELS, PRIORS, write_folders, write_points, write_sets

SETS, POINTS = "fedul", "xclp"


@pytest.mark.parametrize(
    ("code", "method", "name", "text"),
    [
        ("file-missing", SETS, "priors.csv", None),
        ("priors-header", SETS, "priors.csv", ""),
        ("class-priors-wrong", SETS, "priors.csv", PRIORS.replace("0.7", "0.6")),
        ("csv-encoding", SETS, "priors.csv", b"set,sound,ill\n\x81,1,0\n"),
        ("priors-header", SETS, "priors.csv", PRIORS.replace("ill", "well")),
        ("set-missing", SETS, "priors.csv", PRIORS + "march,1,0\n"),
        ("file-not-readable", SETS, "january.npz", "no archive"),
        ("labels-file-wrong", POINTS, "labels.csv", ""),
        ("labels-file-wrong", POINTS, "labels.csv", LABELS + "12,ill\n"),
        ("csv-encoding", POINTS, "labels.csv", b"name,label\n\x81,ill\n"),
        ("label-unknown", POINTS, "labels.csv", LABELS + "4,cyst\n"),
        ("file-not-readable", POINTS, "scans.npz", "no archive"),
        ("files-contradict", POINTS, "notes.txt", "x"),
    ],
)
def test_data_that_are_refused(
    here: Path, code: str, method: str, name: str, text: str | bytes | None
) -> None:
    folder = write_sets(here / "ward") if method == SETS else write_points(here / "ward")
    file = folder / name
    if text is None:
        file.unlink()
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refused(method) == code


def test_too_few_sets_and_an_empty_one(here: Path) -> None:
    folder = write_sets(here / "ward")
    np.savez(folder / "january.npz", images=np.empty((0, 8, 8), np.uint8))
    assert refused("fedul") == "points-missing"
    (folder / "january.npz").unlink()
    (folder / "priors.csv").write_text("set,sound,ill\nfebruary,0.2,0.8\n")
    assert refused("fedul") == "too-few-sets"
    assert "set february: 10 points" in ready("fedllp")  # one is enough


def test_no_folder_and_formats_that_do_not_fit(here: Path) -> None:
    assert refused("fedul") == "folder-missing"
    assert refused("xclp") == "folder-missing"
    write_sets(here / "ward")
    assert refused("fedul", WHERE + ' format="files"') == "setting-not-a-choice"
    assert refused("xclp", WHERE + ' format="sets"') == "setting-not-a-choice"
    assert refused("xclp", WHERE + ' format="class-folders"') == "folder-layout"


def test_two_answers_to_what_the_labels_are(here: Path) -> None:
    folder = write_folders(here / "ward")
    (folder / "labels.csv").write_text("name,label\nunlabeled/0.png,ill\n")
    assert refused("xclp") == "files-contradict"
    assert "7 points, 1 with a label" in ready("xclp", WHERE + ' format="files"')
    (folder / "labels.csv").rename(here / "known.csv")
    assert "7 points, 4 with a label" in ready("xclp")
    known = WHERE + ' known-labels="known.csv" format="files"'
    assert "7 points, 1 with a label" in ready("xclp", known)
