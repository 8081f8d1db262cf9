"""FedLC: supervised training whose logits are calibrated by how often a client has each class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedul_flwr import method as kit
from fedul_flwr.baselines.supervised import METHOD as SUPERVISED
from fedul_flwr.baselines.supervised import SupervisedClient
from fedul_flwr.config.method_settings import SupervisedSettings, UnlabeledSetSettings

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 1e-8
"""Number of points of a class that a client lacks, as in Flower's baseline."""


class FedLCSettings(kit.Settings):
    """Calibration of logits (FedLC)."""

    table: ClassVar[str] = "fedlc"
    tau: Annotated[float, Field(ge=0)] = 1.0
    """Factor of the margins; 0 is `supervised`."""


def margins(counts: kit.Ints, tau: float) -> kit.Floats:
    """``(K,)``, τ n_k^(−1/4), by which logits of class k are lower in training (eq. 8).

    Examples
    --------
    >>> margins(np.array([16, 81, 0]), 1.0).round(4).tolist()
    [0.5, 0.3333, 100.0]
    """
    return np.asarray(tau * np.maximum(counts, LEAST) ** -0.25)


class FedLCClient(SupervisedClient):
    """Trains on its points with their labels, logits calibrated (Zhang et al. 2022)."""

    def task(self, round: kit.Round) -> kit.Task:
        """Cross-entropy of the calibrated logits."""
        import torch
        from torch.nn import functional

        counts = np.bincount(self.data.examples.labels, minlength=self.num_classes)
        lower = torch.from_numpy(margins(counts, self.settings[FedLCSettings].tau))

        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(logits - lower.to(logits.device, logits.dtype), targets)

        return replace(super().task(round), loss=kit.on_logits(loss))


METHOD = replace(
    SUPERVISED,
    name="fedlc",
    line="Supervised training with logits calibrated by how often a client has each class.",
    paper="Zhang et al., ICML 2022, arXiv:2209.00189",
    client=FedLCClient,
    settings=(UnlabeledSetSettings, SupervisedSettings, FedLCSettings),
)
