"""``fedul-flwr deploy check``: data that it refuses, by what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.owner_files import LABELS, PRIORS, write_points, write_sets

SETS, POINTS = "fedul", "xclp"


@pytest.mark.parametrize(
    ("code", "method", "name", "text"),
    [
        ("file-missing", SETS, "priors.csv", None),
        ("class-priors-wrong", SETS, "priors.csv", PRIORS.replace("0.7", "0.6")),
        ("file-not-readable", SETS, "january.npz", "no archive"),
        ("labels-file-wrong", POINTS, "labels.csv", LABELS + "12,ill\n"),
        ("label-unknown", POINTS, "labels.csv", LABELS + "4,cyst\n"),
        ("files-contradict", POINTS, "notes.txt", "x"),
    ],
)
def test_data_that_are_refused(
    here: Path, code: str, method: str, name: str, text: str | None
) -> None:
    folder = write_sets(here / "ward") if method == SETS else write_points(here / "ward")
    file = folder / name
    if text is None:
        file.unlink()
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
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
