"""Every built-in method passes what authors of methods can check."""

from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.testing import check_method

AT_SERVER = {
    **{"scenario.labels-at": "server", "server-fraction": 0.05},
    "labels.total": "auto",
}
OF_PAGES = ("tests.method.flexfed:METHOD", "tests.method.fedproto:METHOD")
STAGED = {"semi.labels-only-rounds": 1}  # the second stage begins, too
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: STAGED for name, method in METHODS.items() if "semi" in method.tables},
    "xclp": {**STAGED, "xclp.secure": "plaintext"},  # a secret seed would be drawn anew
    "sage": {"sage.threshold": 0.2},
    "proxyfl": {"proxyfl.threshold": 0.2},
    "fedul-finetune": {"server-fraction": 0.05},
    "fedul-mix": {"server-fraction": 0.05},
    "fedmatch": {"fedmatch.helpers": 0},
    "semifl": {**AT_SERVER, "semifl.threshold": 0.1},
}
"""What a method cannot do without, and what makes it learn from unlabeled points at once."""


@pytest.mark.parametrize("method", [*METHODS, *OF_PAGES])
def test_built_in_methods_and_those_of_pages(method: str) -> None:
    check_method(method, **SETTINGS.get(method, {}))
