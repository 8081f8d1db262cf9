"""``deploy status``: which node an owner has, and in which state it is."""

from __future__ import annotations

from pathlib import Path

from fedul_flwr.deploy.status import NONE, rows, status
from tests.support.refusals import refuses

OWNERS = {"st-mary": "0", "north": "1", "late": "2", "new": "3"}
LISTED = [
    {"node-id": "70", "status": "online", "online-at": "2026-11-23 10:00:00Z", "offline-at": "N/A"},
    {"node-id": "71", "status": "offline", "online-at": "9", "offline-at": "2026-11-23 11:00:00Z"},
    {"node-id": "72", "status": "registered", "online-at": "N/A", "offline-at": "N/A"},
    {"node-id": "80", "status": "online", "online-at": "2026-11-23 12:00:00Z", "offline-at": "N/A"},
    {"node-id": "81", "status": "unregistered", "online-at": "N/A", "offline-at": "N/A"},
]


def test_given_owners_and_nodes_then_every_owner_has_a_row_and_strange_nodes_follow() -> None:
    assert rows(OWNERS, {"st-mary": "70", "north": "71", "late": "72"}, LISTED) == [
        ("0", "st-mary", "70", "online", "2026-11-23 10:00:00Z"),
        ("1", "north", "71", "offline", "2026-11-23 11:00:00Z"),
        ("2", "late", "72", "registered, never connected", NONE),
        ("3", "new", NONE, "not registered", NONE),
        (NONE, NONE, "80", "online", "2026-11-23 12:00:00Z"),
    ]


def test_given_an_owner_whose_node_was_unregistered_then_it_is_not_registered() -> None:
    assert rows({"gone": "0"}, {"gone": "81"}, LISTED[-1:]) == [
        ("0", "gone", "81", "not registered", NONE)
    ]


def test_given_another_folder_then_it_is_refused(tmp_path: Path) -> None:
    with refuses("folder-missing"):
        status(tmp_path)
