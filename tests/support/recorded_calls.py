"""What a function was called with, in tests that let it do its work."""

from typing import Any

import pytest


def recorded(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, position: int) -> list[Any]:
    """The argument at ``position`` of every call of ``owner.name`` from now on.

    Parameters
    ----------
    owner : a module, or a class whose method is called: then position 0 is the object.
    """
    found: list[Any] = []
    real = getattr(owner, name)

    def called(*arguments: Any) -> Any:
        found.append(arguments[position])
        return real(*arguments)

    monkeypatch.setattr(owner, name, called)
    return found
