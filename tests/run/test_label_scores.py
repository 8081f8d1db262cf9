"""Scores of labels and of their confidence, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.run_files.label_files import LEFT_OUT, XCLP, file_name, write_labels
from fedul_flwr.data.types import Propagated
from fedul_flwr.run.scores import risk_coverage, score, score_labels


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def test_a_score_by_hand() -> None:
    # Class 0: 2 of 4 right; class 1: its only one; class 3: 0 of 1, without a label.
    # Two points of unknown truth do not count. 3 of 6 right; (1/2 + 1 + 0) / 3 = 1/2.
    found = score(ints(0, 0, 1, 2, 1, -1, 0, -1), ints(0, 0, 0, 0, 1, 3, -1, -1))
    assert found is not None
    assert found.points == 6
    assert found.error == pytest.approx(50)
    assert found.balanced_accuracy == pytest.approx(50)
    assert found.unreached == pytest.approx(100 / 6)


def test_risk_and_coverage_by_hand() -> None:
    # By confidence: right, wrong, right, wrong. Errors 0/1, 1/2, 1/3, 2/4.
    confidence, right = np.array([0.2, 0.9, 0.5, 0.7]), np.array([0.0, 1, 1, 0])
    shares, errors = risk_coverage(confidence, right, at=4)
    assert shares.tolist() == [0.25, 0.5, 0.75, 1]
    np.testing.assert_allclose(errors, [0, 50, 100 / 3, 50])
    # Two shares: ceil(4 · 1/2) and all.
    shares, errors = risk_coverage(confidence, right, at=2)
    assert shares.tolist() == [0.5, 1]
    np.testing.assert_allclose(errors, [50, 50])


def test_equal_confidence_counts_by_its_mean() -> None:
    # 0.9 right; then three of 0.5, of which one is right: each is 1/3 right.
    # Right among the first 1, 2, 3, 4: 1, 4/3, 5/3, 2.
    confidence, right = np.array([0.5, 0.9, 0.5, 0.5]), np.array([1.0, 1, 0, 0])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        errors = risk_coverage(confidence[order], right[order], at=4)[1]
        np.testing.assert_allclose(errors, [0, 100 / 3, 400 / 9, 50])


def test_shares_are_all_there() -> None:
    # Of 100 points every hundredth is one more point; of 7, every count from 1 to 7.
    assert risk_coverage(np.arange(100.0), np.ones(100))[0].tolist() == [
        count / 100 for count in range(1, 101)
    ]
    shares = risk_coverage(np.arange(7.0), np.ones(7))[0]
    np.testing.assert_allclose(shares, np.arange(1, 8) / 7)


# Files of clients

TRUTHS = [
    LabelTruth(ints(5, 8, 2), ints(0, 1, 1), ints(0, -1, -1), np.array([False, False, True])),
    LabelTruth(ints(3, 9), ints(1, 0), ints(-1, -1), np.array([True, False])),
]


def truths(*, new: bool) -> list[LabelTruth]:
    return [
        LabelTruth(truth.points, truth.labels, truth.observed, truth.new & new) for truth in TRUTHS
    ]


def write(folder: Path, client: int, source: str, labels: dict[str, tuple[int, float]]) -> None:
    (folder / str(client)).mkdir(parents=True, exist_ok=True)
    found = Propagated(
        ints(*(label for label, _ in labels.values())),
        np.array([confidence for _, confidence in labels.values()]),
    )
    write_labels(folder / str(client) / file_name(source), list(labels), found, ["a", "b"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Names go by rows of images, in any order. Client 0: 8 wrong, 2 right; client 1: both right.
    write(tmp_path, 0, XCLP, {"2": (1, 0.75), "8": (0, 0.5)})
    write(tmp_path, 1, XCLP, {"3": (1, 0.25), "9": (0, 1.0)})
    # Left out, client 0 is asked for all points, and 5 is wrong.
    write(tmp_path, 0, LEFT_OUT, {"5": (1, 0.5), "8": (1, 0.5), "2": (1, 0.5)})
    return tmp_path


def test_all_unlabeled_points_count_without_new_ones(folder: Path) -> None:
    found = score_labels(folder, truths(new=False), 3)
    assert found["points"] == "unlabeled"
    assert list(found["sources"]) == [XCLP, LEFT_OUT]
    xclp = found["sources"][XCLP]
    # Of classes (1, 1, 1, 0) one of class 1 is wrong: (2/3 + 1) / 2.
    assert xclp["points"] == 4
    assert xclp["error"] == pytest.approx(25)
    assert xclp["balanced_accuracy"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert [(client["id"], client["error"]) for client in xclp["clients"]] == [(0, 50), (1, 0)]
    # By confidence: right, right, wrong, right.
    np.testing.assert_allclose(xclp["coverage"]["share"], [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(xclp["coverage"]["error"], [0, 0, 100 / 3, 25])
    assert found["sources"][LEFT_OUT]["error"] == pytest.approx(100 / 3)
    assert [client["id"] for client in found["sources"][LEFT_OUT]["clients"]] == [0]


def test_only_new_points_count_where_there_are_some(folder: Path) -> None:
    found = score_labels(folder, truths(new=True), 3)
    assert found["points"] == "new"
    assert found["sources"][XCLP]["points"] == 2  # 2 and 3
    assert found["sources"][XCLP]["error"] == 0
    assert found["sources"][LEFT_OUT]["points"] == 1
