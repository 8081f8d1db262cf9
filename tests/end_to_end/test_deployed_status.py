"""``deploy status`` on a real SuperLink with the owners that ``deploy init`` names."""

from __future__ import annotations

from fedul_flwr.deploy.status import NONE, status
from tests.support.deployment import Deployment


def test_given_registered_owners_then_status_has_their_nodes_and_states(
    two_owners: Deployment,
) -> None:
    found = status(two_owners.files)
    assert [(row.client, row.owner) for row in found] == [
        (str(number), f"owner-{number}") for number in range(2)
    ]
    assert len({row.node for row in found} - {NONE}) == 2
    known = {"registered, never connected", "offline", "online"}  # others may have run before
    assert {row.state for row in found} <= known
