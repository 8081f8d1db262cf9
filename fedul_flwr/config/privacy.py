"""Settings of differential privacy for the clients of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings, only_with
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.errors import UserError

Positive = Annotated[float, Field(gt=0)]
PLAIN_MEANS = ("fedavg", "fedprox")
"""Bases that average updates like FedAvg, the only mean that epsilon is known for."""
CLIPPED = only_with("dp.clipping", "server", "client")


class DPSettings(Settings):
    """Differential privacy of clients: clipped updates, and Gaussian noise on their mean.

    McMahan et al. 2018 (arXiv:1710.06963).
    """

    table: ClassVar[str] = "dp"
    clipping: Literal["none", "server", "client"] = "none"
    """Who clips a client's update: with `server` the server sees unclipped updates, with `client`
    only clipped ones. The server adds the noise; with `secure-sum = "on"` each client adds a part.
    `none`: no clipping, no noise."""
    norm: Annotated[Positive, CLIPPED] = 1.0
    """C, the L2 norm to which an update (the client's model minus the global one) is clipped."""
    noise_multiplier: Annotated[Positive, CLIPPED] = 1.0
    """z: the mean over n clients gets Gaussian noise of standard deviation z·C/n, or somewhat more
    with `secure-sum = "on"`."""
    delta: Annotated[float, Field(gt=0, lt=1), CLIPPED] = 1e-5
    """Delta at which epsilon is reported; far below 1 / number of clients."""
    max_epsilon: Annotated[float, Field(ge=0), CLIPPED] = 0.0
    """The run ends before the round that would exceed this epsilon; 0 sets no limit."""


def refuse_unaccounted(settings: SharedSettings, privacy: DPSettings) -> None:
    """Refuse settings for which the reported epsilon would be wrong."""
    if privacy.clipping == "none":
        return
    choice = f"Setting dp.clipping = {privacy.clipping!r} needs"
    if settings.base not in PLAIN_MEANS:
        raise UserError(
            f"{choice} base = 'fedavg' or 'fedprox', not {settings.base!r}: "
            "epsilon is known for a plain mean only.",
            "setting-breaks-privacy",
            setting="base",
        )
    if settings.head != "trained":
        raise UserError(
            f"{choice} head = 'trained': sums for a head in closed form have no noise.",
            "setting-breaks-privacy",
            setting="head",
        )
    if settings.client_weights != "uniform":
        raise UserError(
            f"{choice} client-weights = 'uniform', not {settings.client_weights!r}: "
            "a client must not weigh more than its share of the noise covers.",
            "setting-breaks-privacy",
            setting="client-weights",
        )
    if settings.sums_updates and privacy.clipping == "server":
        raise UserError(
            f"{choice} secure-sum = 'off': the server sees no update that it could clip. "
            "Choose dp.clipping = 'client'.",
            "setting-breaks-privacy",
            setting="secure-sum",
        )
    if settings.test_prior == "sets":
        raise UserError(
            f"{choice} a test-prior other than 'sets', "
            "which tells everybody the mean of the clients' class priors without noise.",
            "setting-breaks-privacy",
            setting="test-prior",
        )
