"""What a run's settings do not protect, in sentences for data owners and ethics boards."""

from __future__ import annotations

from collections.abc import Iterator

from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig


def unprotected(settings: RunConfig) -> Iterator[str]:
    """One sentence for each thing that somebody other than the owner can learn or do.

    Parameters
    ----------
    settings : all settings of the run, with those that depend on the data resolved.
    """
    method = find_method(settings.method)
    if method.trains and method.asks_clients and method.updates:
        yield from _of_updates(settings)
    if settings.sums_heads:
        yield (
            "The server gets sums over all owners' points: of their features by class, and of "
            "products of two features."
        )
    elif settings.makes_heads:
        yield (
            "The server gets sums over each owner's points by itself: of their features by class, "
            "and of products of two features. Of few points they tell the points."
        )
    yield from method.unprotected(settings)
    tables = settings.sections.values()
    if any(isinstance(one, AdmissionSettings) and one.share_priors for one in tables):
        yield "The server gets the class shares of every set."
    if settings.standardize_sum == "plaintext":
        yield "The server gets mean and variance of every column of each owner's points."
    elif settings.standardize_sum == "masked":
        yield "The server gets mean and variance of every column of all owners' points together."
    if settings.method not in METHODS:
        yield (
            "The method is somebody's own: what its program sends beyond this list, nobody has "
            "checked here."
        )
    yield "The server sees how many points an owner has, and when and how much its machine sends."
    yield (
        "Owners' machines run the program that the server sends. Whoever runs the server can send "
        "another one, which can read what the user of the SuperNode can read."
    )


def _of_updates(settings: RunConfig) -> Iterator[str]:
    dp, is_summed = settings[DPSettings], settings.sums_updates
    if is_summed:
        yield (
            "The server sees the mean of all owners' models, and no model of one owner, as long as "
            "too few of them work with it."
        )
    else:
        yield (
            "The server sees the model of each owner by itself: models are not added up under "
            "encryption."
        )
    if dp.clipping == "client" and is_summed:
        yield (
            f"Updates are clipped to the length {dp.norm:g} at the owner. Each owner adds its part "
            "of the noise."
        )
    elif dp.clipping == "client":
        yield (
            f"Updates are clipped to the length {dp.norm:g} at the owner. The noise is added by "
            "the server, which sees updates without it."
        )
    elif dp.clipping == "server":
        yield "The server clips updates and adds noise, and sees them without either."
    else:
        yield (
            "Updates are neither clipped nor noised: whoever has one, or the model of the run, may "
            "find out something about the points that it was trained on."
        )
