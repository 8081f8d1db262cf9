"""The plan of a client's local training in one round."""

from __future__ import annotations

from dataclasses import dataclass

import torch

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LocalPlan:
    """Plan of a client's local training in one round; fields are settings of the same names.

    ``proximal_mu`` is the weight mu of FedProx's (mu/2)·‖w − w_global‖². With ``heads_only`` the
    last linear layer is trained, and nothing else.
    """

    local_epochs: int = 1
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    l1: float = 0.0
    augment: str = "none"
    proximal_mu: float = 0.0
    device: torch.device = CPU
    precision: str = "float32"
    noise: float = 0.0
    feature_dropout: float = 0.0
    mixup: float = 0.0
    heads_only: bool = False
