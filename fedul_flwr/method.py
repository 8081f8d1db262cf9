"""All that a method of one's own imports: its two sides, its settings, and what they declare.

A method's settings are a :class:`Settings`, its server a :class:`Strategy`, its clients a
:class:`Client`, whose :class:`Task` of a round has batches and a loss; a :class:`Method` names the
three. docs/own-method.md has an example and every rule.
"""

from typing import TYPE_CHECKING, Any

from fedul_flwr.config.base import Settings
from fedul_flwr.config.methods import MATCHING, Method
from fedul_flwr.data.types import Content
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData, UnlabeledSetData
from fedul_flwr.federated.disclosure import Sent
from fedul_flwr.federated.messages import metric
from fedul_flwr.federated.reports import Numbers
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.task import Batch, Batches, Round, Task, on_logits

if TYPE_CHECKING:
    from fedul_flwr.learning.local import Network

__all__ = [
    "MATCHING",
    "Batch",
    "Batches",
    "Client",
    "Content",
    "Method",
    "Network",
    "Numbers",
    "PartlyLabeledData",
    "Round",
    "Sent",
    "Settings",
    "Strategy",
    "Task",
    "UnlabeledSetData",
    "UserError",
    "metric",
    "on_logits",
]


def __getattr__(name: str) -> Any:
    if name != "Network":  # it needs torch, which a list of methods does not
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedul_flwr.learning.local import Network

    return Network
