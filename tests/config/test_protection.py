"""What is not protected follows from the settings: each choice changes its own sentence alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.protection import unprotected
from fedul_flwr.config.run_config import RunConfig

ALONE = "The server sees the model of each owner by itself"
PLAIN = "Updates are neither clipped nor noised"
DISTANCES = "The server sees how similar any two points of all owners are"


def said(settings: RunConfig) -> str:
    return " ".join(unprotected(settings))


@pytest.mark.parametrize("method", list(METHODS))
def test_given_any_method_then_the_server_and_its_program_are_named(
    settings: Callable[..., RunConfig], method: str
) -> None:
    text = said(settings(method=method))
    assert "Owners' machines run the program that the server sends." in text
    trains = METHODS[method].trains and method != "server-only"
    assert (ALONE in text, PLAIN in text) == (trains, trains)
    if method not in ("xclp", "xclp-predict"):
        assert DISTANCES not in text


@pytest.mark.parametrize("method", ["xclp", "xclp-predict"])
@pytest.mark.parametrize("secure", ["rlwe", "ot", "plaintext"])
def test_given_points_that_are_compared_then_what_the_server_gets_depends_on_the_encryption(
    settings: Callable[..., RunConfig], method: str, secure: str
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
    settings: Callable[..., RunConfig], clipping: str, sentence: str
) -> None:
    chosen = {"dp.clipping": clipping} | ({} if clipping == "none" else {"dp.norm": 0.3})
    text = said(settings(**chosen))
    assert sentence in text
    assert (PLAIN in text) == (clipping == "none")
