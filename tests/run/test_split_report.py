"""What a simulation says of its split, and writes, before round 1."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.sources import load_source
from tests.support.refusals import refuses
from tests.support.runs import cut_off, summary, train
from tests.support.settings import QUICK, Settings

NUM_TRAINING = len(load_source("digits").train.labels)
FEW: dict[str, Any] = {
    **{**QUICK, "num_rounds": 1, "points_per_client": 0, "partition": "pathological"},
    "pathological.classes-per-client": 2,
}


def at_clients(directory: Path) -> NDArray[np.int64]:
    clients = json.loads((directory / "federation.json").read_text())["clients"]
    counts: NDArray[np.int64] = np.sum([client["class_counts"] for client in clients], axis=0)
    return counts


@pytest.mark.parametrize("method", ["fedul", "supervised", "fixmatch"])
def test_classes_and_points_at_no_client_are_said_before_round_1(
    method: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flwr")
    # Three clients of two classes have six of the ten classes.
    directory = cut_off(
        settings(**FEW, method=method, figures="all"), 3, 1
    )  # call 0 asks who is there
    said = [record.getMessage() for record in caplog.records]
    (line,) = [text for text in said if text.startswith("Split: ")]
    counts = at_clients(directory)
    absent = np.flatnonzero(counts == 0)
    assert len(absent) == 4
    with np.load(directory / "split.npz") as split:
        points, kept = split["points"], len(split["validation"]) + len(split["server"])
        assert len(points) == len(np.unique(points)) == counts.sum()
    lost = NUM_TRAINING - kept - len(points)
    assert f"{lost:,} of {NUM_TRAINING - kept:,} points" in line
    assert "3 clients" in line
    warnings = [text for text in said if "No client has a point" in text]
    assert len(warnings) == 1
    assert all(f"'{k}'" in warnings[0] for k in absent)
    assert not any(f"'{k}'" in warnings[0] for k in np.flatnonzero(counts))
    assert any(f"{lost:,} of" in text for text in said if text != line)
    assert (directory / "split.png").read_bytes().startswith(b"\x89PNG")
    assert not (directory / "metrics.jsonl").read_text()


def test_the_summary_keeps_the_warnings_and_none_comes_where_all_is_at_clients(
    settings: Settings,
) -> None:
    few, every = train(settings(**FEW), 3), train(settings(**FEW), 5)
    first, second = summary(few)["warnings"][:2]
    assert "No client has a point of classes" in first
    assert "points (" in second
    assert not [text for text in summary(every)["warnings"] if " client" in text]
    assert (at_clients(every) > 0).all()
    assert not (few / "split.png").exists()  # only with figures = "all"


def test_points_in_no_set_and_classes_without_a_label_are_counted(settings: Settings) -> None:
    # Each set draws from all points of its client: some are in two sets, and some in none.
    run = train(settings(**{**QUICK, "points_per_client": 0, "fedul.overlap": "shared"}), 2)
    with np.load(run / "split.npz") as split:
        points, sets = split["points"], split["sets"]
        kept = len(split["validation"])
        assert len(sets) == len(points)
        assert split["bounds"].tolist()[-1] == len(points)
        assert split["priors"].shape == split["true_priors"].shape
    lost = NUM_TRAINING - kept - len(np.unique(points))
    assert lost > 0
    (said,) = [text for text in summary(run)["warnings"] if "in no set" in text]
    assert said.startswith(f"{lost:,} of {NUM_TRAINING - kept:,} ")
    # Two clients with labels of two classes each: six of ten classes have no label.
    labels = {"labels.total": 20, "labels.classes-per-client": 2, "method": "fixmatch"}
    few = train(settings(**QUICK, **labels), 2)
    (said,) = [text for text in summary(few)["warnings"] if "has a label of" in text]
    with np.load(few / "split.npz") as split:
        absent = sorted({*range(10)} - {*split["labels"].tolist()})
    assert len(absent) == 6
    assert said.count("'") == 2 * 6
    assert all(f"'{k}'" in said for k in absent)


def test_a_split_of_sets_is_none_of_labels(settings: Settings) -> None:
    run = train(settings(**{**QUICK, "num_rounds": 1}), 2)
    with refuses("split-file-unfit", setting="labels.split"):
        train(
            settings(
                **{"model": "mlp", "method": "fixmatch", "num_rounds": 1},
                **{"labels.split": str(run / "split.npz")},
            ),
            2,
        )
