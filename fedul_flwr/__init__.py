"""Federated learning from data with few labels or none."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fedul-flwr")
except PackageNotFoundError:  # run from a Flower app bundle, where the package is not installed
    __version__ = "unknown"
