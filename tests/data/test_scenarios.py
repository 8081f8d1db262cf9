"""Labels at clients, at the server, or everywhere: what clients are given, and which runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.method_settings import LabelSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.split import Split, build_split
from tests.data.conftest import write_source
from tests.data.test_label_split import LABELS, write_saved

AT_SERVER = {"scenario.labels-at": "server"}
ALL_GIVEN = Method("all-given", "m:S", "m:C", (LabelSettings,), data="fully-labeled")
"""A method of one's own that learns from all labels and has settings of new points."""
ALL_GIVEN_METHOD = f"{__name__}:ALL_GIVEN"


def config(method: str, **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_source(tmp_path / "data", LABELS)


def given(split: Split) -> list[LabelTruth]:
    return [client for client in split.clients if isinstance(client, LabelTruth)]


@pytest.mark.parametrize("partition", ["iid", "majority"])
def test_points_are_dealt_alike_whoever_has_labels(place: Path, partition: str) -> None:
    shared = {"partition": partition, "server-fraction": 0.1}
    runs = {
        "clients": config("uda", **shared),
        "server": config("uda", **shared, **AT_SERVER),
        "all": config("all-labels", **shared),
    }
    splits = {name: build_split(place, 3, run) for name, run in runs.items()}
    for parts in zip(*(given(split) for split in splits.values()), strict=True):
        found = dict(zip(splits, parts, strict=True))
        for part in parts:
            np.testing.assert_array_equal(part.points, found["clients"].points)
            np.testing.assert_array_equal(part.labels, LABELS[part.points])
        assert (found["clients"].observed >= 0).sum() in (33, 34)  # 100 labels for three clients
        assert (found["server"].observed == -1).all()
        np.testing.assert_array_equal(found["all"].observed, found["all"].labels)
    for split in splits.values():
        np.testing.assert_array_equal(split.server, splits["clients"].server)
        np.testing.assert_array_equal(split.validation, splits["clients"].validation)
    assert len(splits["server"].server) == 40


def test_new_points_have_no_label_and_are_the_same_ones(place: Path) -> None:
    options = {"labels.new-fraction": 0.2}
    runs = [config("uda", **options), config("uda", **options, **AT_SERVER)]
    runs.append(config(ALL_GIVEN_METHOD, **options))
    some, none, every = (given(build_split(place, 3, run)) for run in runs)
    for clients in zip(some, none, every, strict=True):
        new = clients[0].new
        assert new.sum() == round(0.2 * len(new))
        for client in clients:
            np.testing.assert_array_equal(client.new, new)
            assert (client.observed[new] == -1).all()
        assert (clients[2].observed[~new] == clients[2].labels[~new]).all()


def test_all_labels_of_a_client_can_be_withheld(place: Path) -> None:
    clients = given(build_split(place, 3, config(ALL_GIVEN_METHOD, **{"labels.without-client": 1})))
    assert [bool((client.observed >= 0).all()) for client in clients] == [True, False, True]
    assert (clients[1].observed == -1).all()


@pytest.mark.parametrize("scenario", [{}, AT_SERVER])
def test_the_labels_of_an_earlier_split(
    place: Path, tmp_path: Path, scenario: dict[str, Any]
) -> None:
    earlier = build_split(place, 3, config("uda", **{"labels.total": 60, "server-fraction": 0.1}))
    write_saved(tmp_path / "split.npz", earlier)
    reused = {"labels.split": str(tmp_path / "split.npz")}
    again = build_split(place, 3, config("uda", **reused, **scenario))
    np.testing.assert_array_equal(again.server, earlier.server)
    for one, other in zip(given(earlier), given(again), strict=True):
        np.testing.assert_array_equal(one.points, other.points)
        np.testing.assert_array_equal(other.observed, -1 if scenario else one.observed)
    every = build_split(place, 3, config(ALL_GIVEN_METHOD, **reused))
    for one in given(every):
        np.testing.assert_array_equal(one.observed, one.labels)


# Which runs share a split


def directory(place: Path, method: str, **options: Any) -> Path:
    return build_split(place, 3, config(method, **options)).directory


def test_methods_share_a_split_where_labels_are_the_same(place: Path) -> None:
    for options in ({}, {"labels.total": 60, "partition": "majority"}):
        methods = ("uda", "fixmatch", "xclp", "labels-only", "fedsiam")
        assert len({directory(place, method, **options) for method in methods}) == 1
    ours = {directory(place, method, **AT_SERVER) for method in ("uda", "fixmatch")}
    assert len(ours) == 1
    # Nothing that says how to train, or when points arrive, decides who holds what.
    other = {"scenario.streaming-steps": 4, "ssl.operations": 2, "base": "fedprox"}
    assert directory(place, "uda", **other) == directory(place, "uda")
    assert directory(place, "uda", **other, **AT_SERVER) in ours
    assert directory(place, "all-labels", **AT_SERVER) == directory(place, "all-labels")
