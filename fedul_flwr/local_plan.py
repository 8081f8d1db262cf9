"""From a run's settings to what one round of local training does."""

from __future__ import annotations

from fedul_flwr.config import RunConfig
from fedul_flwr.learning.machine import choose_device, choose_dtype
from fedul_flwr.learning.plan import LocalPlan


def local_plan(settings: RunConfig, proximal_mu: float = 0.0) -> LocalPlan:
    """The plan that ``settings`` describe, on this machine.

    Parameters
    ----------
    proximal_mu : weight of the proximal term, as the base strategy sends it.
    """
    device = choose_device(settings.device)
    return LocalPlan(
        local_epochs=settings.local_epochs,
        batch_size=settings.batch_size,
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        l1=settings.l1,
        augment=settings.augment,
        proximal_mu=proximal_mu,
        device=device,
        dtype=choose_dtype(settings.precision, device),
    )
