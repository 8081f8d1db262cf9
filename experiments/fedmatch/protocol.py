"""What the tables of FedMatch's paper share, for all methods."""

from collections.abc import Mapping
from typing import Any

SETTINGS = {
    "method": "fedmatch",
    "model": "resnet9",
    "local-epochs": 1,
    "optimizer": "sgd",
    "learning-rate": 1e-3,
    "learning-rate-schedule": "client-plateau",
    "augment": "none",
    "weight-decay": 0.0,
    "ssl.recipe": "release",
    "fedmatch.threshold": 0.75,
}
CIFAR = {
    **SETTINGS,
    "dataset": "uoft-cs/cifar10",
    "validation-fraction": 0.06,
    "num-rounds": 200,
    "fraction-train": 0.05,
}
AT_CLIENTS = {"batch-size": 10, "learning-rate-patience": 5}
AT_SERVER = {
    "scenario.labels-at": "server",
    "batch-size": 100,
    "learning-rate-patience": 20,
    "fedmatch.l1-weight": 1e-5,
    "fedmatch.psi-cutoff": 1e-5,
    "fedmatch.difference-threshold": 1e-5,
}


def of_resnet9(rows: Mapping[str, dict[str, Any]], quick: bool) -> dict[str, dict[str, Any]]:
    """The rows at one size.

    The authors' code gives a plain ResNet-9 first weights 1.2 times as large as FedMatch's, which
    begins there with sigma and a psi of 0.2 sigma. Quick rows are without that.
    """
    scaled = {} if quick else {"init-scale": 1.2}
    return {
        row: {**of_row} if of_row.get("method", "fedmatch") == "fedmatch" else {**scaled, **of_row}
        for row, of_row in rows.items()
    }
