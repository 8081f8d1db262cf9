"""The type of the fixture ``settings``."""

from __future__ import annotations

from collections.abc import Callable

from fedul_flwr.config.run_config import RunConfig

Settings = Callable[..., RunConfig]
