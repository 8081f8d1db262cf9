"""Runs here are looked at by their numbers: leave out the pictures, half of a short run's time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fedul_flwr.engine.in_process import task_identity
from tests.secure_parties import PROTOCOLS, TOY, borrowed


@pytest.fixture
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's Bulyan collects garbage for every client, which takes longer than all else here."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


@pytest.fixture
def identity() -> Iterator[None]:
    """For tests that make messages, which name who sends them."""
    with task_identity():
        yield


@pytest.fixture(params=PROTOCOLS)
def secure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A value of ``xclp.secure``; the toy protocol borrows one."""
    return borrowed(monkeypatch) if request.param == TOY else str(request.param)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The value of ``xclp.secure`` that is the toy's."""
    return borrowed(monkeypatch)
