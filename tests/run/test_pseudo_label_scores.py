"""Pseudo labels of each round, scored by a simulation: the figures follow from clients' files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.run.scores import score_pseudo_labels
from tests.support.runs import metrics, train

Settings = Callable[..., RunConfig]
QUICK: dict[str, Any] = {
    "model": "mlp",
    "num_rounds": 2,
    "local_epochs": 1,
    "fraction_train": 0.5,
    "semi.labels-only-rounds": 1,
}
KEYS = {"pseudo_label_error", "pseudo_labeled"}


def test_figures_follow_from_the_files(settings: Settings) -> None:
    # Neighbors are few, so that labels do not reach every point.
    directory = train(settings(**QUICK, method="xclp", **{"xclp.k": 1, "labels.total": 20}), 4)
    first, second = metrics(directory)
    assert not KEYS & first.keys()
    files = sorted(directory.glob("clients/*/pseudo-labels-2.safetensors"))
    assert len(files) == 2  # of the round's clients alone
    labels = read_source(source_directory("digits")).train.labels
    asked = got = wrong = 0
    for file in files:
        arrays = load_file(file)
        for point, label in zip(arrays["points"], arrays["labels"], strict=True):
            asked += 1
            got += label >= 0
            wrong += label >= 0 and label != labels[point]
    assert 0 < wrong < got < asked
    assert second["pseudo_label_error"] == pytest.approx(100 * wrong / got)
    assert second["pseudo_labeled"] == pytest.approx(100 * got / asked)


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
