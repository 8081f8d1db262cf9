"""Protocols that propagations are tested with."""

import pytest

from tests.support.secure_parties import PROTOCOLS, TOY, borrowed


@pytest.fixture(params=PROTOCOLS)
def secure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A value of ``xclp.secure``; the toy protocol borrows one."""
    return borrowed(monkeypatch) if request.param == TOY else str(request.param)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The value of ``xclp.secure`` that is the toy's."""
    return borrowed(monkeypatch)
