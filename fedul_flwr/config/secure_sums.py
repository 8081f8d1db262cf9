"""What the server of a run reads as a sum over clients alone, by the run's settings."""

from __future__ import annotations

from fedul_flwr.config.method_settings import FedULSettings
from fedul_flwr.config.run_config import RunConfig


def has_sums(settings: RunConfig) -> bool:
    """Whether a run has secure sums: of updates, or of columns alone."""
    return settings.secure_sum == "on" or settings.standardize_sum == "masked"


def told_class_masses(settings: RunConfig) -> bool:
    """Whether each client tells the server how many points of each class it expects."""
    return settings.test_prior == "sets" and settings.secure_sum == "off"


def summed_of_sets(settings: RunConfig) -> tuple[bool, bool]:
    """Whether the server reads sums over clients: of class masses, and of what tells whether their
    sets together tell the classes apart (``fedul.fewer-sets``)."""
    options, is_summed = settings.find(FedULSettings), settings.secure_sum == "on"
    has_gram = options is not None and options.fewer_sets and not options.share_priors
    return is_summed and settings.test_prior == "sets", is_summed and has_gram
