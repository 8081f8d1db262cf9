"""What a function was called with, in tests that let it do its work."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


def recorded(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, position: int
) -> list[Any]:
    """The argument at ``position`` of every call of ``module.name`` from now on."""
    found: list[Any] = []
    real = getattr(module, name)

    def called(*arguments: Any) -> Any:
        found.append(arguments[position])
        return real(*arguments)

    monkeypatch.setattr(module, name, called)
    return found
