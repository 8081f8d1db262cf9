"""Standardizing: moments by hand, pooling equal to one owner of all points, constant columns."""

import json
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.standardize import (
    Moments,
    ScaledInputs,
    Scaling,
    SharedScaling,
    constant_scaling,
    moments,
    pooled,
    scaled,
    scaling_by,
)
from fedul_flwr.data.types import UnlabeledSets
from fedul_flwr.federated.client_data import ClientData, UnlabeledSetData
from tests.support.digits_settings import settings_of_client
from tests.support.refusals import refuses


def test_pooled_moments_by_hand() -> None:
    # Points 1 and 3 (mean 2, variance 1) and the point 8 (variance 0): the mean is 12/3 = 4 and
    # the variance ((1 − 4)² + (3 − 4)² + (8 − 4)²)/3 = 26/3.
    parts = [Moments(np.array([2.0]), np.array([1.0])), Moments(np.array([8.0]), np.array([0.0]))]
    found = pooled([2, 1], parts)
    assert found.means == pytest.approx([4])
    assert found.variances == pytest.approx([26 / 3])


def test_pooled_moments_equal_those_of_all_points_even_beside_a_large_mean() -> None:
    rng = np.random.default_rng(0)
    # Sums of squares in float64 would be about 1e16 with a step of 2, and the variance 1.
    inputs = rng.normal(1e8, [1, 8, 3], (50, 3))
    parts = [moments(inputs, np.arange(start, stop)) for start, stop in ((0, 7), (7, 20), (20, 50))]
    found = pooled([7, 13, 30], parts)
    np.testing.assert_allclose(found.means, inputs.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.variances, inputs.var(axis=0), rtol=1e-6)


def test_a_constant_column_gets_scale_1_and_becomes_0() -> None:
    inputs = np.array([[0.1, 1.0], [0.1, 3.0]], dtype=np.float32)
    by = scaling_by(moments(inputs, np.arange(2)), None)
    assert by.scales.tolist() == [1.0, 1.0]
    assert scaled(inputs, by).tolist() == [[0, -1], [0, 1]]
    five = np.full((7, 1), 0.1, dtype=np.float32)
    assert scaling_by(moments(five, np.arange(7)), None).scales.tolist() == [1.0]


def test_features_of_categories_stay_0_and_1() -> None:
    columns = Columns((Column("sex", ("f", "m")), Column("age")))
    by = scaling_by(Moments(np.array([0.5, 0.5, 40.0]), np.array([0.25, 0.25, 4.0])), columns)
    assert by.means.tolist() == [0, 0, 40]
    assert by.scales.tolist() == [1, 1, 2]


def test_constants_come_from_the_columns_file() -> None:
    columns = Columns((Column("age", mean=60.0, scale=10.0), Column("sex", ("f", "m"))))
    assert scaled(np.array([[70.0, 1, 0]]), constant_scaling(columns)).tolist() == [[1, 1, 0]]
    with refuses("columns-file-needed", setting="standardize"):
        constant_scaling(None)
    with refuses("columns-file-needed", setting="standardize"):
        constant_scaling(Columns((Column("age"),)))


def test_scaled_inputs_standardize_the_rows_that_are_taken() -> None:
    raw = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
    shared = SharedScaling()
    inputs = ScaledInputs(raw, shared)
    with refuses("not-sent-yet"):
        inputs[np.array([0])]
    shared.value = Scaling(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    assert inputs[np.array([2, 0])].tolist() == [[2, 6], [0, 2]]
    assert (len(inputs), inputs.shape, inputs.dtype) == (3, (3, 2), np.float32)
    assert raw[2].tolist() == [5, 6]


POINTS = np.array([[1, 10], [3, 30], [99, 99]], np.float32)
CONSTANTS = json.dumps(
    {"columns": [{"name": name, "mean": 1, "scale": 2} for name in ("age", "weight")]}
)
POOLED = {"column-means": [1.0, 10.0], "column-scales": [2.0, 10.0]}


@pytest.mark.parametrize(
    ("kind", "setup", "rows"),
    [
        # The client's own points 0 and 1 have means 2 and 20, deviations 1 and 10.
        ("owner", {}, [[-1, -1], [1, 1]]),
        ("constants", {"columns": CONSTANTS}, [[0, 4.5], [1, 14.5]]),
        ("federation", POOLED, [[0, 0], [1, 2]]),
        ("none", {}, [[1, 10], [3, 30]]),
    ],
)
def test_a_client_standardizes_its_points_by_its_setting(
    kind: str, setup: dict[str, Any], rows: list[list[float]]
) -> None:
    settings = settings_of_client({"method": "supervised", "standardize": kind})
    data = ClientData(settings, NodeConfig(), {"model-shape": [2], **setup})
    found = data.standardized(POINTS, np.array([0, 1]))
    assert found[np.array([0, 1])].tolist() == rows
    assert data.standardized(found, np.array([0])) is found or kind == "none"
    images = ClientData(settings, NodeConfig(), {**setup, "model-shape": [2, 1, 1]})
    assert images.standardized(POINTS, np.array([0, 1])) is POINTS


def test_the_points_of_unlabeled_sets_are_standardized(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of_client({"method": "fedul", "standardize": "owner"})
    data = UnlabeledSetData(settings, NodeConfig(), {"model-shape": [2]})
    rows = np.array([0, 1])
    found = UnlabeledSets(POINTS, rows, np.array([0, 1]), np.eye(2))
    monkeypatch.setattr(data, "_open_sets", lambda: found)
    assert data.sets.inputs[rows].tolist() == [[-1, -1], [1, 1]]  # as of the client above
    assert data.own_rows[1].tolist() == [0, 1]
