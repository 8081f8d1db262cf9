"""Settings of methods that train at the server, on a labeled set of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings


class ServerTrainingSettings(Settings):
    """Training on labeled points at the server, with the shared optimiser, batch size and L1."""

    dataset: str = ""
    """Data set with the labeled points, its train split; empty takes `server-fraction` of the
    run's own training data."""
    points: Annotated[int, Field(ge=0)] = 0
    """Use only so many of them, in the proportions of the classes; 0 uses all."""
    epochs: Annotated[int, Field(ge=1)] = 1
    """Epochs per round."""
    learning_rate: Annotated[float, Field(ge=0)] = 0.0
    """Step size at the server; 0 takes the shared `learning-rate`."""


class FedULMixSettings(Settings):
    """Mixing FedUL's model with one trained at the server (bi-objective FedUL, method 2)."""

    mixing_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight lambda of the server's model f' in (1 − lambda)·f + lambda·f'."""
    independent: Literal["restart", "persistent"] = "restart"
    """Whether f' starts from the aggregated f in every round, or lives on from the first round."""
