"""Everything of Flower that is not public and that we use, but for its SuperLink's parts.

``engine/superlink_guard.py`` imports these, and no other module imports any.
``tests/test_house.py`` lists Flower's public modules and allows five names in each.
"""

import sys

from flwr.app.message import make_message
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

__all__ = [
    # Kinds of error replies. Public is only that a kind is a number.
    "ErrorCode",
    # Sender of messages created in this process. Every `Message` needs it, and only Flower's own
    # programs set it.
    "TaskIdentity",
    # Below.
    "is_http_grid",
    # A message with given metadata. A reply that cannot be unpacked becomes an error from the same
    # client to the same message; the public `Message` only makes replies of one's own.
    "make_message",
    # Parser of `flower-supernode --node-config`, which skips what it cannot read. `deploy check`
    # shows an owner what a SuperNode would make of the text.
    "parse_config_args",
]


def is_http_grid(grid: object) -> bool:
    """Whether ``grid`` is the one on devices, as opposed to a simulation's.

    Flower's module has been imported where there is one; it loads a database, which takes a third
    of the time that a simulation needs to start.
    """
    module = sys.modules.get("flwr.superlink.grid.http_grid")
    return module is not None and isinstance(grid, module.HttpGrid)
