"""Everything of Flower that is not public and that we use; no other module imports any of it.

``tests/test_house.py`` lists Flower's public modules and allows five names here.
"""

from flwr.app.message import make_message
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

__all__ = [
    # Kinds of error replies. Public is only that a kind is a number.
    "ErrorCode",
    # The grid on devices, as opposed to the one in a simulation: only there are messages packed.
    "HttpGrid",
    # Sender of messages created in this process. Every `Message` needs it, and only Flower's own
    # programs set it.
    "TaskIdentity",
    # A message with given metadata. A reply that cannot be unpacked becomes an error from the same
    # client to the same message; the public `Message` only makes replies of one's own.
    "make_message",
    # Parser of `flower-supernode --node-config`, which skips what it cannot read. `deploy check`
    # shows an owner what a SuperNode would make of the text.
    "parse_config_args",
]
