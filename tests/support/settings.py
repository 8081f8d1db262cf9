"""Settings that tests of runs share, and the type of the fixture ``settings``."""

from collections.abc import Callable
from typing import Any

from fedul_flwr.config.run_config import RunConfig

Settings = Callable[..., RunConfig]
QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 60},
}
AT_SERVER: dict[str, Any] = {"scenario.labels-at": "server", "server_fraction": 0.1}
WIDE: dict[str, Any] = {
    **{"precision": "float64", "batch_size": 0, "optimizer": "sgd", "learning_rate": 0.01},
}
"""All points in one batch, in numbers that add up exactly enough to compare with a plain loop."""
