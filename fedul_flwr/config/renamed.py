"""Other names of settings: Flower's own of the rounds, and those in runs of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedul_flwr.errors import UserError

RENAMED_KEYS = {
    "image-shape": "input-shape",
    "semi.surest": "semi.top-fraction",
    "ssl.least-magnitude": "ssl.min-magnitude",
    "ssl.most-magnitude": "ssl.max-magnitude",
    "xclp.fewest-labeled": "xclp.min-labeled-clients",
}
"""Keys in stored settings, old and new."""

RENAMED_METHODS = {"perclient-lp": "local-lp", "network-labels": "pseudo-label"}
"""Values of `method` in stored settings, old and new."""

FLOWER_ROUNDS, ROUNDS = "num-server-rounds", "num-rounds"
"""The number of rounds as Flower's own apps call it, and as it is called here."""


def with_rounds(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``flat`` with the number of rounds under its name here; 0 under Flower's name is none.

    Raises
    ------
    UserError
        If there are two different numbers.
    """
    settings = dict(flat)
    rounds = settings.pop(FLOWER_ROUNDS, 0)
    if rounds == 0 and rounds is not False:
        return settings
    # Flower passes defaults, too: only another value than the default was set by somebody.
    from fedul_flwr.config.shared import SharedSettings

    if settings.get(ROUNDS, rounds) not in (rounds, SharedSettings().num_rounds):
        raise UserError(
            f"Settings {FLOWER_ROUNDS} and {ROUNDS} are two names of one: leave one of them out."
        )
    return settings | {ROUNDS: rounds}


def current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run stored, under their current names."""
    settings = {RENAMED_KEYS.get(key, key): value for key, value in stored.items()}
    if name := RENAMED_METHODS.get(str(settings.get("method"))):
        settings["method"] = name
    return settings
