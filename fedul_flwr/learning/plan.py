"""The plan of a client's local training in one round, from a run's settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.device import choose_device
from fedul_flwr.learning.schedules import cosine

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LocalPlan:
    """Plan of a client's local training in one round; fields are settings of the same names.

    ``proximal_mu`` is the weight mu of FedProx's (mu/2)·‖w − w_global‖². With ``heads_only`` the
    last linear layer is trained, and nothing else. ``nesterov`` is the form of SGD's momentum, and
    ``max_gradient_norm`` the largest norm of a step's gradient, 0 for any.
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
    nesterov: bool = False
    max_gradient_norm: float = 0.0


def local_plan(
    settings: RunConfig,
    proximal_mu: float = 0.0,
    stage: tuple[int, int] = (1, 1),
    server_lr_factor: float = 1.0,
) -> LocalPlan:
    """The plan that ``settings`` describe, on this machine.

    Parameters
    ----------
    proximal_mu : weight of the proximal term, as the base strategy sends it.
    stage : number of the round within its training stage, from 1, and the stage's length; by
        default the plan has the step size of the settings.
    server_lr_factor : factor of the step size sent by the server (`plateau`).

    Examples
    --------
    >>> from fedul_flwr.config.run_config import parse_flat
    >>> plan = local_plan(parse_flat({"device": "cpu", "batch-size": 16, "learning-rate": 0.5}))
    >>> plan.batch_size, plan.learning_rate
    (16, 0.5)
    """
    device = choose_device(settings.device)
    return LocalPlan(
        local_epochs=settings.local_epochs,
        batch_size=settings.batch_size,
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate * rate_factor(settings, *stage) * server_lr_factor,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        l1=settings.l1,
        augment=settings.augment,
        proximal_mu=proximal_mu,
        device=device,
        precision=settings.precision,
        noise=settings.noise,
        feature_dropout=settings.feature_dropout,
        mixup=settings.mixup,
    )


def rate_factor(settings: RunConfig, round_of_stage: int, rounds: int) -> float:
    """Factor of step sizes in a round, counted from 1, of a stage of ``rounds`` rounds.

    The factor of `plateau` is not included: it depends on losses, and the server sends it.

    Examples
    --------
    >>> from fedul_flwr.config.run_config import parse_flat
    >>> round(rate_factor(parse_flat({"learning-rate-schedule": "cosine"}), 6, 10), 4)
    0.5
    """
    if settings.learning_rate_schedule != "cosine":
        return 1.0
    return cosine(round_of_stage, settings.learning_rate_rounds or rounds)
