"""Settings of methods that train at the server, on the server's own labeled set."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings


class ServerTrainingSettings(Settings):
    """Training on labeled points at the server, with the shared optimizer, batch size and L1."""

    table: ClassVar[str] = "server"
    dataset: str = ""
    """Data set whose train split has the labeled points; empty takes `server-fraction` of the run's
    own training data."""
    points: Annotated[int, Field(ge=0)] = 0
    """Use only this many labeled points, in the proportions of the classes; 0 uses all."""
    epochs: Annotated[int, Field(ge=1)] = 1
    """Epochs per round."""
    learning_rate: Annotated[float, Field(ge=0)] = 0.0
    """Step size (learning rate) at the server; 0 takes the shared `learning-rate`."""


class FedULMixSettings(Settings):
    """Mixing FedUL's model with one trained at the server (bi-objective FedUL, method 2)."""

    table: ClassVar[str] = "fedul-mix"
    mixing_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight lambda of the server's model f' in (1 − lambda)·f + lambda·f'."""
    independent: Literal["restart", "persistent"] = "restart"
    """Whether f' restarts from the aggregated f in every round, or continues from its own last
    round."""
