"""What is protected follows from the settings, and what would make epsilon untrue."""

import re
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.federated.declared import unprotected
from tests.support.refusals import refuses
from tests.support.settings import Settings

ALONE = "The server sees the model of each owner by itself"
PLAIN = "Updates are neither clipped nor noised"
DISTANCES = "The server sees how similar any two points of all owners are"


def said(settings: RunConfig) -> str:
    return " ".join(unprotected(settings))


@pytest.mark.parametrize("method", list(METHODS))
def test_what_no_method_protects(settings: Settings, method: str) -> None:
    text = said(settings(method=method))
    assert "Owners' machines run the program that the server sends." in text
    trains = METHODS[method].trains and METHODS[method].updates and method != "server-only"
    assert (ALONE in text, PLAIN in text) == (trains, trains)
    if method not in ("xclp", "xclp-predict"):
        assert DISTANCES not in text


def test_given_a_head_in_closed_form_then_owners_read_whose_sums_the_server_gets(
    settings: Settings,
) -> None:
    masked = said(settings(method="closed-form"))
    plain = said(settings(method="closed-form", **{"closed-form.sum": "plaintext"}))
    assert "sums over all owners' points" in masked
    assert "sums over each owner's points by itself" in plain
    both = said(settings(head="closed-form"))
    assert ALONE in both
    assert "sums over all owners' points" in both


@pytest.mark.parametrize("method", ["xclp", "xclp-predict"])
@pytest.mark.parametrize("secure", ["rlwe", "ot", "plaintext"])
def test_given_points_that_are_compared_then_what_the_server_gets_depends_on_the_encryption(
    settings: Settings, method: str, secure: str
) -> None:
    text = said(settings(method=method, **{"xclp.secure": secure}))
    assert (DISTANCES in text) == (secure != "plaintext")
    assert ("The server gets a code of every point" in text) == (secure == "plaintext")


@pytest.mark.parametrize(
    ("clipping", "sentence"),
    [
        ("none", PLAIN),
        ("server", "The server clips updates and adds noise, and sees them without either."),
        ("client", "Updates are clipped to the length 0.3 at the owner. The noise is added by"),
    ],
)
def test_given_differential_privacy_then_it_says_what_the_server_still_sees(
    settings: Settings, clipping: str, sentence: str
) -> None:
    chosen = {"dp.clipping": clipping} | ({} if clipping == "none" else {"dp.norm": 0.3})
    text = said(settings(**chosen))
    assert sentence in text
    assert (PLAIN in text) == (clipping == "none")


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
    with refuses("setting-breaks-privacy", setting="dp.clipping", match=next(iter(overrides))):
        parse_flat({**default_flat(), **overrides, **ON})


@pytest.mark.parametrize(("key", "value"), [("norm", 2.0), ("max-epsilon", 3.0)])
def test_without_noise_the_rest_has_no_effect(key: str, value: float) -> None:
    with refuses("setting-without-effect", setting=f"dp.{key}"):
        parse_flat({**default_flat(), f"dp.{key}": value})
    found = parse_flat({**default_flat(), **ON, f"dp.{key}": value})[DPSettings]
    assert getattr(found, key.replace("-", "_")) == value


def test_methods_of_whose_clients_no_sum_of_models_is_enough_do_not_take_it() -> None:
    takes = {name for name, method in METHODS.items() if "dp" in method.tables}
    assert not takes & {"closed-form", "fedul-heads", "semifl", "server-only", "xclp-predict"}
    for name in METHODS.keys() - takes:
        with refuses("setting-without-effect", setting="dp.clipping") as error:
            parse_flat({**default_flat(), "method": name, **ON})
        assert {*re.findall(r"'([\w-]+)'", str(error.value))} == {*takes, "server"}
