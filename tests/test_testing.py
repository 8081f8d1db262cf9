"""Every built-in method passes what authors of methods can check."""

from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.testing import check_method

AT_SERVER = {
    **{"scenario.labels-at": "server", "server-fraction": 0.05},
    "labels.total": "auto",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "fedul-finetune": {"server-fraction": 0.05},
    "fedul-mix": {"server-fraction": 0.05},
    "fedmatch": {"fedmatch.helpers": 0},
    "semifl": {**AT_SERVER, "semifl.threshold": 0.1},
}
"""What a method cannot do without."""


@pytest.mark.parametrize("method", METHODS)
def test_built_in_methods(method: str) -> None:
    check_method(method, **SETTINGS.get(method, {}))
