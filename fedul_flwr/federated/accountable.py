"""Reports for a data owner before a run: a summary of the data, and a list of what will be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.disclosure import (
    AVERAGED,
    EVERY_ROUND,
    HELLO,
    PREPARE,
    SERVER,
    TRAIN,
    Sent,
)
from fedul_flwr.federated.dispatch import FederatedClient
from fedul_flwr.federated.messages import ARRAYS, DIAGNOSTICS, METRICS
from fedul_flwr.learning.variates import CONTROL, KEPT_ROUNDS

if TYPE_CHECKING:
    from torch import nn  # importing it takes seconds, and most messages do not need it


class AccountableClient(FederatedClient):
    """Base of all clients, with the methods for ``fedul-flwr deploy check``."""

    settings: RunConfig

    @property
    def model(self) -> nn.Module:
        """The class model."""
        raise NotImplementedError

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Everything that this client sends in a run; subclasses add what their method sends."""
        told = ("partition-id", "num-partitions", "own-data")
        reader = SERVER if settings.base == "local" else AVERAGED
        figures = ("num-examples", "loss", "steps", "normalizer")
        spent = ("started", "ended", "process")
        sent = [
            Sent(HELLO, told, "which client it is", often="once, asked of one of the clients"),
            Sent(PREPARE, told, "which client it is"),
            Sent(TRAIN, ("*",), "the model after local training", ARRAYS, EVERY_ROUND, reader),
            Sent(TRAIN, figures, "how many points, and how training went", METRICS, EVERY_ROUND),
            Sent(TRAIN, spent, "when it trained, in which process", DIAGNOSTICS, EVERY_ROUND),
        ]
        if settings.base == "scaffold":
            sent.append(Sent(PREPARE, (KEPT_ROUNDS,), "in which rounds it had a variate it has"))
            what = "the change of its variate, a mean of gradients"
            sent.append(Sent(TRAIN, ("*",), what, CONTROL, EVERY_ROUND, AVERAGED))
        return sent

    def update(self) -> Mapping[str, Arrays]:
        """Arrays of an update by record, at their largest possible size, before any training."""
        arrays = self.model_arrays()
        if self.settings.base != "scaffold":
            return {ARRAYS: arrays}
        weights = {name for name, _ in self.model.named_parameters()}
        return {ARRAYS: arrays, CONTROL: {n: a for n, a in arrays.items() if n in weights}}

    def model_arrays(self) -> Arrays:
        """The model's arrays in the run's precision."""
        from fedul_flwr.learning.local import dump_arrays

        if self.settings.precision == "float64":
            self.model.double()
        return {name: np.asarray(array) for name, array in dump_arrays(self.model).items()}

    def describe(self) -> Iterator[str]:
        """Lines that describe the client's data; may contain paths, names and labels."""
        yield from ()

    def judge(self) -> None:
        """Check whether this client can take part in the run.

        Raises
        ------
        OwnDataError
            If its data can be read, but are not what the method needs.
        """
