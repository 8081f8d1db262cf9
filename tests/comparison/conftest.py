"""Runs here are looked at by their numbers, too."""

from __future__ import annotations

from tests.strategies.conftest import no_plots

__all__ = ["no_plots"]
