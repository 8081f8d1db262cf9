"""Which settings reach the reading of an owner's data, its features and its scaled columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.baselines import supervised
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data import local_data
from fedul_flwr.data import local_data as local_labels
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.standardize import ScaledInputs
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import LabeledPoints, PartlyLabeledPoints, UnlabeledSets
from fedul_flwr.extractors import feature_store, find
from fedul_flwr.federated.client_data import ClientData, PartlyLabeledData, UnlabeledSetData

Settings = Callable[..., RunConfig]
SETUP = {"class-names": ["ill", "well"], "input-shape": [2], "model-shape": [2]}
VECTORS = np.array([[1.0, 10.0], [3.0, 10.0], [100.0, 20.0], [5.0, 40.0]], np.float32)
POINTS = PartlyLabeledPoints(
    VECTORS, np.array([0, 1, 3]), np.array([0, 1, -1]), np.zeros(3, dtype=bool)
)
"""Rows 0, 1 and 3; row 2 is somebody else's."""
TABLES: dict[str, Any] = {"missing": "median", "label_column": "state"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of the reader of points, which returns :data:`POINTS`."""
    calls: list[dict[str, Any]] = []

    def read(folder: Path, names: Any, shape: Any, **options: Any) -> PartlyLabeledPoints:
        calls.append({"folder": folder, "names": names, "shape": shape, **options})
        return POINTS

    monkeypatch.setattr(local_labels, "load_partly_labeled", read)
    return calls


def owner(settings: RunConfig, kind: type[ClientData] = ClientData, **node: Any) -> Any:
    config = NodeConfig.parse({"partition-id": 0, "num-partitions": 1, "data": "own", **node})
    return kind(settings, config, SETUP)


def test_given_settings_of_tables_then_tables_are_read_by_them(settings: Settings) -> None:
    texts = {"text_column": "note", "features": "own_package.texts:vectors"}
    found = owner(settings(method="labels-only", **TABLES, **texts)).table
    assert found == TableOptions("median", "state", None, "note")


def test_given_an_owners_node_config_then_its_points_are_read_by_it(
    settings: Settings, asked: list[dict[str, Any]]
) -> None:
    config = settings(method="labels-only", standardize="none", **TABLES)
    data = owner(config, PartlyLabeledData, format="class-folders", **{"known-labels": "known.csv"})
    assert data.examples.inputs is VECTORS
    (call,) = asked
    assert call == {
        "folder": Path("own"),
        "names": ["ill", "well"],
        "shape": (2,),
        "form": "class-folders",
        "known_labels": data.node.known_labels,
        "table": TableOptions("median", "state"),
    }
    assert data.node.known_labels


def test_given_settings_of_tables_then_sets_are_read_by_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    sets = UnlabeledSets(VECTORS, np.arange(4), np.array([0, 0, 1, 1]), np.eye(2))

    def read(*given: Any, table: TableOptions) -> UnlabeledSets:
        calls.append((*given, table))
        return sets

    monkeypatch.setattr(local_data, "load_unlabeled_sets", read)
    data = owner(settings(standardize="none", **TABLES), UnlabeledSetData)
    assert data.sets == sets
    assert calls == [(Path("own"), ["ill", "well"], 2, (2,), TableOptions("median", "state"))]


def test_given_an_extractor_then_points_are_its_features_by_the_runs_settings(
    settings: Settings, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(find, "find_extractor", lambda *given: found.append(given) or "extractor")
    monkeypatch.setattr(feature_store, "feature_array", lambda points, by: (points, by))
    config = settings(
        method="labels-only", features="efficientnet-lite0", device="cpu", precision="float64"
    )
    data = owner(config, PartlyLabeledData)
    assert data.load_points(Path("own")).inputs == (VECTORS, "extractor")
    assert found == [("efficientnet-lite0", "cpu", "float64")]
    plain = owner(settings(method="labels-only"), PartlyLabeledData)
    assert plain.load_points(Path("own")).inputs is VECTORS


def scaled_by_own_rows(found: Any) -> None:
    assert isinstance(found, ScaledInputs)
    # Of rows 0, 1 and 3 the means are 3 and 20, the deviations √(8/3) and √200.
    expected = (VECTORS - [3.0, 20.0]) / np.sqrt([8 / 3, 200.0])
    np.testing.assert_allclose(found[np.arange(4)], expected, rtol=1e-6)


def test_given_an_owners_own_scaling_then_it_is_that_of_its_own_rows(
    settings: Settings, asked: list[dict[str, Any]]
) -> None:
    config = settings(method="labels-only", standardize="owner")
    scaled_by_own_rows(owner(config, PartlyLabeledData).examples.inputs)


@pytest.mark.parametrize("simulated", [True, False])
def test_given_points_that_all_have_labels_then_the_same_holds_for_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, simulated: bool
) -> None:
    points = replace(POINTS, labels=np.array([0, 1, 1]))
    monkeypatch.setattr(local_labels, "load_partly_labeled", lambda *_, **__: points)
    labeled = LabeledPoints(VECTORS, points.points, points.labels)
    monkeypatch.setattr(supervised, "open_labeled_points", lambda *_: labeled)
    data = owner(
        settings(method="supervised", standardize="owner"),
        supervised.LabeledData,
        data="" if simulated else "own",
    )
    found = data.examples
    scaled_by_own_rows(found.inputs)
    assert found.points.tolist() == [0, 1, 3]
    assert found.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("features", ["", "efficientnet-lite0"])
def test_given_categories_then_an_owners_scaling_leaves_them_alone_but_not_features(
    settings: Settings, asked: list[dict[str, Any]], features: str
) -> None:
    columns = Columns((Column("age"), Column("sex", ("female",))))
    config = settings(method="labels-only", standardize="owner", features=features)
    node = NodeConfig.parse({"partition-id": 0, "num-partitions": 1, "data": "own"})
    data = PartlyLabeledData(config, node, {**SETUP, "columns": columns.to_json()})
    found = data.standardized(VECTORS, np.array([0, 1, 3]))
    assert isinstance(found, ScaledInputs)
    of_second = 1 / np.sqrt(200.0) if features else 1.0
    np.testing.assert_allclose(found.by().means, [3.0, 20.0 if features else 0.0])
    np.testing.assert_allclose(1 / found.by().scales, [np.sqrt(3 / 8), of_second])
