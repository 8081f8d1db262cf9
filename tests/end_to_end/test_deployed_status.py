"""``deploy status`` on a real SuperLink with the owners that ``deploy init`` names."""

from __future__ import annotations

from fedul_flwr.deploy.status import NONE, status
from tests.support.deployment import Deployment


def test_given_registered_owners_then_status_has_their_nodes_and_states(
    deployment: Deployment,
) -> None:
    found = status(deployment.files)
    assert [(row.client, row.owner) for row in found] == [
        (str(number), f"owner-{number}") for number in range(3)
    ]
    assert len({row.node for row in found} - {NONE}) == 3
    known = {"registered, never connected", "offline", "online"}  # others may have run before
    assert {row.state for row in found} <= known
