"""What a node config may hold, and every refusal of it."""

from __future__ import annotations

from typing import Any

import pytest

from fedul_flwr.config.node_config import POINT_FORMATS, SET_FORMATS, NodeConfig
from fedul_flwr.errors import OwnDataError


def test_what_an_owner_writes() -> None:
    told = {"partition-id": 2, "num-partitions": 3, "data": "/d", "labels": "/l.csv"}
    found = NodeConfig.parse({**told, "format": "files", "known-labels": "/k.csv"})
    assert (found.partition_id, found.num_partitions, found.data) == (2, 3, "/d")
    assert (found.labels, found.format, found.known_labels) == ("/l.csv", "files", "/k.csv")


def test_what_a_simulation_gives_and_what_is_left_out() -> None:
    found = NodeConfig.parse({"partition-id": 0, "num-partitions": 1})
    assert (found.data, found.labels, found.known_labels) == ("", "", "")
    assert found.format == "auto"
    assert NodeConfig.parse({"partition-id": 7}).num_partitions == 0  # their number is open


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dta": "/d"}, "Unknown node config 'dta'; did you mean 'data'?"),
        (
            {"known_labels": "/k"},
            "Unknown node config 'known_labels'; did you mean 'known-labels'?",
        ),
        ({"xyz": 1}, "Unknown node config 'xyz'; docs/own-data.md lists all."),
        ({"data": 3}, "Node config data = 3: must be a string."),
        ({"partition-id": "1"}, "Node config partition-id = '1': must be a whole number."),
        ({"partition-id": True}, "Node config partition-id = True: must be a whole number."),
        ({"partition-id": 1.0}, "Node config partition-id = 1.0: must be a whole number."),
        ({"partition-id": -1}, "Node config partition-id = -1: must be at least 0."),
        ({"num-partitions": -1}, "Node config num-partitions = -1: must be at least 0."),
        (
            {"partition-id": 3, "num-partitions": 3},
            "Node config partition-id = 3: must be below num-partitions = 3, for clients count "
            "from 0.",
        ),
        (
            {"data": "/d", "format": "folders"},
            "Node config format = 'folders': must be one of 'auto', 'sets', 'files' or "
            "'class-folders'; did you mean 'class-folders'?",
        ),
        (
            {"format": "files"},
            "Node config format = 'files': needs data, the folder that it is about.",
        ),
        (
            {"known-labels": "/k"},
            "Node config known-labels = '/k': needs data, the folder that it is about.",
        ),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OwnDataError) as error:
        NodeConfig.parse(values)
    assert str(error.value) == message
    assert error.value.refusal == "settings"


def test_formats_that_a_method_does_not_read() -> None:
    sets, files = NodeConfig(data="/d", format="sets"), NodeConfig(data="/d", format="files")
    sets.expect_format("fedul", SET_FORMATS)
    files.expect_format("xclp", POINT_FORMATS)
    for found in (SET_FORMATS, POINT_FORMATS):
        NodeConfig(data="/d").expect_format("any", found)
    with pytest.raises(OwnDataError) as error:
        sets.expect_format("xclp", POINT_FORMATS)
    expected = "Node config format = 'sets': method 'xclp' reads 'files' or 'class-folders'."
    assert (str(error.value), error.value.refusal) == (expected, "format")
    with pytest.raises(OwnDataError, match=r"= 'files': method 'fedul' reads 'sets'\.$"):
        files.expect_format("fedul", SET_FORMATS)
    labeled = NodeConfig(data="/d", known_labels="/k")
    labeled.expect_format("xclp", POINT_FORMATS)
    with pytest.raises(OwnDataError, match="known-labels = '/k': method 'fedul' learns from unlab"):
        labeled.expect_format("fedul", SET_FORMATS)
