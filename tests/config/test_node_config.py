"""What a node config may hold, and every refusal of it."""

from __future__ import annotations

from typing import Any

import pytest

from fedul_flwr.config.node_config import POINT_FORMATS, SET_FORMATS, NodeConfig
from fedul_flwr.errors import OwnDataError
from tests.support.refusals import refuses


def test_what_an_owner_writes() -> None:
    told = {"partition-id": 2, "num-partitions": 3, "data": "/d", "labels": "/l.csv"}
    found = NodeConfig.parse({**told, "format": "files", "known-labels": "/k.csv"})
    assert (found.partition_id, found.num_partitions, found.data) == (2, 3, "/d")
    assert (found.labels, found.format, found.known_labels) == ("/l.csv", "files", "/k.csv")


@pytest.mark.parametrize(
    ("values", "code", "about"),
    [
        ({"dta": "/d"}, "unknown-name", {"name": "dta"}),
        ({"known_labels": "/k"}, "unknown-name", {"name": "known_labels"}),
        ({"data": 3}, "setting-wrong-type", {"setting": "data"}),
        ({"partition-id": "1"}, "setting-wrong-type", {"setting": "partition-id"}),
        ({"partition-id": True}, "setting-wrong-type", {"setting": "partition-id"}),
        ({"partition-id": 1.0}, "setting-wrong-type", {"setting": "partition-id"}),
        ({"partition-id": -1}, "setting-out-of-range", {"setting": "partition-id"}),
        ({"num-partitions": -1}, "setting-out-of-range", {"setting": "num-partitions"}),
        ({"partition-id": 3, "num-partitions": 3}, "settings-contradict", {}),
        ({"data": "/d", "format": "folders"}, "setting-not-a-choice", {"setting": "format"}),
        ({"format": "files"}, "settings-contradict", {}),
        ({"known-labels": "/k"}, "settings-contradict", {}),
    ],
)
def test_what_is_refused(values: dict[str, Any], code: str, about: dict[str, str]) -> None:
    with refuses(code, OwnDataError, **about) as error:
        NodeConfig.parse(values)
    assert str(error.value).startswith(("Node config ", "Unknown node config "))


def test_formats_that_a_method_does_not_read() -> None:
    sets, files = NodeConfig(data="/d", format="sets"), NodeConfig(data="/d", format="files")
    sets.expect_format("fedul", SET_FORMATS)
    files.expect_format("xclp", POINT_FORMATS)
    for found in (SET_FORMATS, POINT_FORMATS):
        NodeConfig(data="/d").expect_format("any", found)
    with refuses("setting-not-a-choice", OwnDataError, setting="format"):
        sets.expect_format("xclp", POINT_FORMATS)
    with refuses("setting-not-a-choice", OwnDataError, setting="format"):
        files.expect_format("fedul", SET_FORMATS)
    labeled = NodeConfig(data="/d", known_labels="/k")
    labeled.expect_format("xclp", POINT_FORMATS)
    with refuses("setting-without-effect", OwnDataError, setting="known-labels"):
        labeled.expect_format("fedul", SET_FORMATS)
