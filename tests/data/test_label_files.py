"""Files of labels: what is written, what is read again, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedul_flwr.data.run_files.label_files import read_labels, write_labels
from fedul_flwr.data.types import Propagated
from tests.support.refusals import refuses

NAMES = ["7", 'a, "b".png', "ä/ö.png"]
FOUND = Propagated(np.array([1, -1, 0]), np.array([0.123456789, 0.0, 1.0]))


def test_a_file_by_hand(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", NAMES, FOUND, ["cat", "dog, small"])
    assert (tmp_path / "labels.csv").read_text(encoding="utf-8") == (
        "name,label,class,confidence\n"
        '7,1,"dog, small",0.123457\n'
        '"a, ""b"".png",-1,,0\n'
        "ä/ö.png,0,cat,1\n"
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", NAMES, FOUND, ["cat", "dog, small"])
    names, found = read_labels(tmp_path / "labels.csv")
    assert names == NAMES
    assert found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.labels, FOUND.labels)
    np.testing.assert_allclose(found.confidence, FOUND.confidence, rtol=5e-6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name,label\n7,1\n",
        "name,label,class,confidence\n7,1\n",
        "name,label,class,confidence\n7,cat,cat,0.5\n",
        "name,label,class,confidence\n7,1,cat,sure\n",
        "name,label,class,confidence\n\n",
    ],
    ids=["empty", "other header", "short line", "no number", "no confidence", "empty line"],
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with refuses("labels-file-wrong", match="name,label,class,confidence"):
        read_labels(file)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("labels.csv", "missing.csv", "."):
        with refuses("labels-file-wrong"):
            read_labels(tmp_path / name)
