"""Federated learning from data with few labels or none.

>>> import fedul_flwr as ff
>>> result = ff.simulate("fedul", data=(x, y), clients=10, rounds=20)  # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedul_flwr.api.estimators import FedULClassifier, GraphLabelClassifier
    from fedul_flwr.api.labels import Labels, label
    from fedul_flwr.api.own_client import (
        FedMatchClient,
        FedULClient,
        XCLPClient,
        make_client_app,
    )
    from fedul_flwr.api.own_strategy import XCLP, FedMatch, FedUL
    from fedul_flwr.api.result import Result, TrainedModel
    from fedul_flwr.api.runs import Comparison, compare, load, simulate
    from fedul_flwr.errors import UserError
    from fedul_flwr.propagation.central import label_propagation
    from fedul_flwr.surrogate import SurrogateLoss

__all__ = [
    "XCLP",
    "Comparison",
    "FedMatch",
    "FedMatchClient",
    "FedUL",
    "FedULClassifier",
    "FedULClient",
    "GraphLabelClassifier",
    "Labels",
    "Result",
    "SurrogateLoss",
    "TrainedModel",
    "UserError",
    "XCLPClient",
    "compare",
    "label",
    "label_propagation",
    "load",
    "make_client_app",
    "simulate",
]

_MODULES = {
    "Comparison": "api.runs",
    "FedMatch": "api.own_strategy",
    "FedMatchClient": "api.own_client",
    "FedUL": "api.own_strategy",
    "FedULClassifier": "api.estimators",
    "FedULClient": "api.own_client",
    "GraphLabelClassifier": "api.estimators",
    "Labels": "api.labels",
    "Result": "api.result",
    "SurrogateLoss": "surrogate",
    "TrainedModel": "api.result",
    "UserError": "errors",
    "XCLP": "api.own_strategy",
    "XCLPClient": "api.own_client",
    "compare": "api.runs",
    "label": "api.labels",
    "label_propagation": "propagation.central",
    "load": "api.runs",
    "make_client_app": "api.own_client",
    "simulate": "api.runs",
}
"""Modules of what this package exports; they are imported on first use."""

_package = Path(__file__).parent
if not (_package / "strategies").is_dir():
    # The folders of methods lie beside this package: in a Flower app bundle, which holds no
    # links, and in a checkout on a file system without links.
    __path__.append(str(_package.parent))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fedul-flwr")
    except PackageNotFoundError:  # run from a Flower app bundle: the package is not installed
        return "unknown"
