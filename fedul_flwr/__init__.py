"""Federated learning from data with few labels or none.

>>> import fedul_flwr as ff
>>> result = ff.simulate("fedul", data=(x, y), clients=10, rounds=20)  # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.lazy import door

if TYPE_CHECKING:
    from fedul_flwr.api.estimators import (
        ClosedFormClassifier,
        FedULClassifier,
        GraphLabelClassifier,
    )
    from fedul_flwr.api.labels import Labels, label
    from fedul_flwr.api.own_client import (
        ClosedFormClient,
        FedMatchClient,
        FedULClient,
        FixMatchClient,
        SupervisedClient,
        XCLPClient,
        client_of,
        make_client_app,
    )
    from fedul_flwr.api.own_strategy import (
        XCLP,
        ClosedForm,
        FedMatch,
        FedUL,
        FixMatch,
        Supervised,
        strategy_of,
    )
    from fedul_flwr.api.result import Result, TrainedModel
    from fedul_flwr.api.runs import Comparison, Tuned, compare, load, simulate, tune
    from fedul_flwr.errors import UserError
    from fedul_flwr.propagation.central import label_propagation
    from fedul_flwr.results.evaluate import evaluate
    from fedul_flwr.results.predict import predict
    from fedul_flwr.results.report import report
    from fedul_flwr.run.callbacks import Callback
    from fedul_flwr.surrogate import SurrogateLoss

__all__ = [
    "XCLP",
    "Callback",
    "ClosedForm",
    "ClosedFormClassifier",
    "ClosedFormClient",
    "Comparison",
    "FedMatch",
    "FedMatchClient",
    "FedUL",
    "FedULClassifier",
    "FedULClient",
    "FixMatch",
    "FixMatchClient",
    "GraphLabelClassifier",
    "Labels",
    "Result",
    "Supervised",
    "SupervisedClient",
    "SurrogateLoss",
    "TrainedModel",
    "Tuned",
    "UserError",
    "XCLPClient",
    "client_of",
    "compare",
    "evaluate",
    "label",
    "label_propagation",
    "load",
    "make_client_app",
    "predict",
    "report",
    "simulate",
    "strategy_of",
    "tune",
]

_from = door(
    __name__,
    {
        "api.runs": "Comparison Tuned compare load simulate tune",
        "api.own_strategy": "ClosedForm FedMatch FedUL FixMatch Supervised XCLP strategy_of",
        "api.own_client": "ClosedFormClient FedMatchClient FedULClient FixMatchClient "
        "SupervisedClient XCLPClient client_of make_client_app",
        "api.estimators": "ClosedFormClassifier FedULClassifier GraphLabelClassifier",
        "api.labels": "Labels label",
        "api.result": "Result TrainedModel",
        "results.evaluate": "evaluate",
        "results.predict": "predict",
        "results.report": "report",
        "run.callbacks": "Callback",
        "surrogate": "SurrogateLoss",
        "errors": "UserError",
        "propagation.central": "label_propagation",
    },
)

_package = Path(__file__).parent
if not (_package / "strategies").is_dir():
    # The folders of methods lie beside this package: in a Flower app bundle, which holds no
    # links, and in a checkout on a file system without links.
    __path__.append(str(_package.parent))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    return _from(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fedul-flwr")
    except PackageNotFoundError:  # run from a Flower app bundle: the package is not installed
        return "unknown"
