"""Federated learning from data with few labels or none."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_package = Path(__file__).parent
if not (_package / "strategies").is_dir():
    # The folders of methods lie beside this package: in a Flower app bundle, which holds no
    # links, and in a checkout on a file system without links.
    __path__.append(str(_package.parent))

try:
    __version__ = version("fedul-flwr")
except PackageNotFoundError:  # run from a Flower app bundle, where the package is not installed
    __version__ = "unknown"
