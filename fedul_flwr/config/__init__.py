"""Run configuration: from Flower's flat run config to validated, frozen objects."""

from fedul_flwr.config.resolve import RunConfig, default_flat, parse_flat, resolve
from fedul_flwr.config.settings import Scalar, Settings

__all__ = ["RunConfig", "Scalar", "Settings", "default_flat", "parse_flat", "resolve"]
