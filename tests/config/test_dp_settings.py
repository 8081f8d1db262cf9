"""Settings of differential privacy: which runs take them, and what would make epsilon untrue."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.errors import UserError

ON = {"dp.clipping": "server"}


def refusal(**overrides: Any) -> str:
    with pytest.raises(UserError) as error:
        parse_flat({**default_flat(), **overrides})
    return str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"base": "fedmedian"},
         "base = 'fedavg' or 'fedprox', not 'fedmedian': epsilon is known for a plain mean only."),
        ({"base": "scaffold", "optimizer": "sgd"},
         "base = 'fedavg' or 'fedprox', not 'scaffold': epsilon is known for a plain mean only."),
        ({"client-weights": "examples"},
         "client-weights = 'uniform', not 'examples': a client must not weigh more than its share "
         "of the noise covers."),
        ({"test-prior": "sets"},
         "a test-prior other than 'sets', which tells everybody the mean of the clients' class "
         "priors without noise."),
    ],
)  # fmt: skip
def test_what_epsilon_would_not_be_true_of(overrides: dict[str, Any], message: str) -> None:
    parse_flat({**default_flat(), **overrides})
    assert refusal(**overrides, **ON) == f"Setting dp.clipping = 'server' needs {message}"


@pytest.mark.parametrize(
    ("key", "value"),
    [("norm", 2.0), ("noise-multiplier", 0.5), ("delta", 1e-6), ("max-epsilon", 3.0)],
)
def test_without_noise_the_rest_has_no_effect(key: str, value: float) -> None:
    assert refusal(**{f"dp.{key}": value}) == (
        f"Setting dp.{key} = {value!r} has an effect only with dp.clipping = 'server' or "
        "'client': leave it out."
    )
    found = parse_flat({**default_flat(), **ON, f"dp.{key}": value})[DPSettings]
    assert getattr(found, key.replace("-", "_")) == value


def test_methods_that_send_more_than_an_update_do_not_take_it() -> None:
    takes = {name for name, method in METHODS.items() if "dp" in method.tables}
    assert takes == {
        *("fedul", "fedul-finetune", "fedul-mix", "fedul-consistency", "fedul-assign"),
        *("fedpl", "fedllp", "fedllp-vat", "fedllp-dc", "fedllp-pvc", "supervised"),
    }
    for name in METHODS.keys() - takes:
        said = refusal(method=name, **ON)
        assert said.startswith("Setting dp.clipping = 'server' has an effect only with method = ")
        assert {*re.findall(r"'([\w-]+)'", said)} == {*takes, "server"}
