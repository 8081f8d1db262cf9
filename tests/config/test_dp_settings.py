"""Settings of differential privacy: which runs take them, and what would make epsilon untrue."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import default_flat, parse_flat
from tests.support.refusals import refuses

ON = {"dp.clipping": "server"}


@pytest.mark.parametrize(
    "overrides",
    [
        {"base": "fedmedian"},
        {"base": "scaffold", "optimizer": "sgd"},
        {"client-weights": "examples"},
        {"test-prior": "sets"},
    ],
)
def test_what_epsilon_would_not_be_true_of(overrides: dict[str, Any]) -> None:
    parse_flat({**default_flat(), **overrides})
    with refuses("setting-breaks-privacy", setting=next(iter(overrides))):
        parse_flat({**default_flat(), **overrides, **ON})


@pytest.mark.parametrize(
    ("key", "value"),
    [("norm", 2.0), ("noise-multiplier", 0.5), ("delta", 1e-6), ("max-epsilon", 3.0)],
)
def test_without_noise_the_rest_has_no_effect(key: str, value: float) -> None:
    with refuses("setting-without-effect", setting=f"dp.{key}"):
        parse_flat({**default_flat(), f"dp.{key}": value})
    found = parse_flat({**default_flat(), **ON, f"dp.{key}": value})[DPSettings]
    assert getattr(found, key.replace("-", "_")) == value


def test_methods_that_send_more_than_an_update_do_not_take_it() -> None:
    takes = {name for name, method in METHODS.items() if "dp" in method.tables}
    assert takes == {
        *("fedul", "fedul-finetune", "fedul-mix", "fedul-consistency", "fedul-assign"),
        *("fedpl", "fedllp", "fedllp-vat", "fedllp-dc", "fedllp-pvc", "supervised"),
    }
    for name in METHODS.keys() - takes:
        with refuses("setting-without-effect", setting="dp.clipping") as error:
            parse_flat({**default_flat(), "method": name, **ON})
        assert {*re.findall(r"'([\w-]+)'", str(error.value))} == {*takes, "server"}
