"""Class shares that clients count and the server sends back: what some rivals have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedul_flwr.arrays import Floats
from fedul_flwr.data.class_priors import uniform_prior
from fedul_flwr.data.types import Value
from fedul_flwr.federated.payload import (
    Part,
    Parts,
)

if TYPE_CHECKING:
    pass


from fedul_flwr.federated.strategy import NOT_ALONE, Strategy

CLASS_COUNTS = "class-counts"
"""Report of a client: its points by class, as its method counts them."""
CLASS_SHARES = "class-shares"
"""Shares that the server makes of all clients' counts."""


def class_counts(says: str) -> Parts:
    """The declared counts of a client, summed over all; ``says`` is what they count."""
    return {CLASS_COUNTS: Part("classes", at_least=0, combine="sum", says=says)}


class ClassShareStrategy(Strategy):
    """Sends the class shares in its state, at first all alike; a method says how they change."""

    goes_with = (NOT_ALONE,)
    state = {CLASS_SHARES: None}

    def client_config(self) -> Mapping[str, Value | Floats]:
        """The class shares."""
        shares = self.state[CLASS_SHARES]
        return {CLASS_SHARES: uniform_prior(self.num_classes) if shares is None else shares}
