"""Runs here are looked at by their numbers: no pictures."""

from __future__ import annotations

import pytest

from fedul_flwr.results import plots


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "draw_plots", lambda run, directory: [])
