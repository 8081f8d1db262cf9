"""Scores of labels, of their confidence, of pseudo labels and of class priors, by hand."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedul_flwr.data.run_files.label_files import LEFT_OUT, XCLP, file_name, write_labels
from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.data.split import LabelTruth, SetTruth
from fedul_flwr.data.types import Propagated
from fedul_flwr.run.measures import (
    risk_coverage,
    score,
    score_labels,
    score_priors,
    score_pseudo_labels,
)
from tests.support.runs import metrics, train
from tests.support.settings import Settings


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
    assert found.points == "unlabeled"
    assert list(found.sources) == [XCLP, LEFT_OUT]
    xclp = found.sources[XCLP]
    # Of classes (1, 1, 1, 0) one of class 1 is wrong: (2/3 + 1) / 2.
    assert xclp.points == 4
    assert xclp.error == pytest.approx(25)
    assert xclp.balanced_accuracy == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert [(client.id, client.error) for client in xclp.clients] == [(0, 50), (1, 0)]
    # By confidence: right, right, wrong, right.
    covered = xclp.coverage
    assert covered is not None
    np.testing.assert_allclose(covered.share, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(covered.error, [0, 0, 100 / 3, 25])
    assert found.sources[LEFT_OUT].error == pytest.approx(100 / 3)
    assert [client.id for client in found.sources[LEFT_OUT].clients] == [0]


# Pseudo labels


def test_given_a_run_then_figures_are_of_its_files(settings: Settings) -> None:
    # Neighbors are few, so that labels do not reach every point.
    quick = {"model": "mlp", "num_rounds": 2, "local_epochs": 1, "fraction_train": 0.5}
    stages = {"semi.labels-only-rounds": 1, "xclp.k": 1, "labels.total": 20}
    directory = train(settings(**quick, **stages, method="xclp"), 4)
    first, second = metrics(directory)
    assert not {"pseudo_label_error", "pseudo_labeled"} & first.keys()
    files = [load_file(f) for f in directory.glob("clients/*/pseudo-labels-2.safetensors")]
    assert len(files) == 2  # of the round's clients alone
    points, guess = (np.concatenate([file[key] for file in files]) for key in ("points", "labels"))
    truth = np.asarray(read_source(source_directory("digits")).train.labels)[points]
    got = guess >= 0
    wrong = got & (guess != truth)
    assert 0 < wrong.sum() < got.sum() < len(guess)
    assert second["pseudo_label_error"] == pytest.approx(100 * wrong.sum() / got.sum())
    assert second["pseudo_labeled"] == pytest.approx(100 * got.mean())


def test_points_in_any_order_and_truth_that_is_not_known(tmp_path: Path) -> None:
    truth = LabelTruth(
        points=np.array([7, 3, 9, 5]),
        labels=np.array([1, 0, -1, 2]),
        observed=np.full(4, -1),
        new=np.zeros(4, dtype=bool),
    )
    (tmp_path / "1").mkdir()
    arrays = {"points": np.array([3, 9, 5, 7]), "labels": np.array([0, 1, 0, -1])}
    save_file(arrays, tmp_path / "1" / "pseudo-labels-4.safetensors")
    # Right, unknown, wrong, and none.
    assert score_pseudo_labels(tmp_path, 4, [truth, truth]) == {
        "pseudo_label_error": 50.0,
        "pseudo_labeled": 75.0,
    }
    assert score_pseudo_labels(tmp_path, 3, [truth, truth]) == {}
    assert score_pseudo_labels(tmp_path, 4, []) == {}


# Class priors

TRUE = np.array([[0.5, 0.5], [0.8, 0.2]])


def truth(shares: list[list[float]]) -> SetTruth:
    return SetTruth(ints(), ints(), ints(), np.array(shares), TRUE)


def write_check(folder: Path, client: int, server_round: int, misfits: list[bool]) -> None:
    (folder / str(client)).mkdir(parents=True, exist_ok=True)
    arrays = {"shares": np.array([[0.6, 0.4], [0.8, 0.2]]), "misfits": np.array(misfits)}
    save_file(arrays, folder / str(client) / f"prior-fit-{server_round}.safetensors")


def test_distances_are_means_over_the_sets_of_the_clients_that_checked(tmp_path: Path) -> None:
    write_check(tmp_path, 0, 3, [False, True])
    write_check(tmp_path, 2, 3, [False, False])
    write_check(tmp_path, 1, 2, [True, True])  # an earlier round
    truths = [truth([[0.5, 0.5], [0.2, 0.8]]), truth([[1, 0], [0, 1]]), truth([[0.4, 0.6], [1, 0]])]
    # Told: 0, 0.6, 0.1, 0.2; found: 0.1, 0, 0.1, 0; of the misfit: 0.6.
    assert score_priors(tmp_path, 3, truths)["prior_fit"] == {
        "sets": 4,
        "misfits": 1,
        "told_distance": pytest.approx(0.9 / 4),
        "found_distance": pytest.approx(0.2 / 4),
        "misfit_distance": pytest.approx(0.6),
    }
