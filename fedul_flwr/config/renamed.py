"""Other names of settings and methods: Flower's, and those of earlier versions.

Names of an earlier version work for one version more.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import Any

from fedul_flwr.errors import UserError

RENAMED_KEYS = {
    "image-shape": "input-shape",
    "semi.surest": "semi.top-fraction",
    "ssl.least-magnitude": "ssl.min-magnitude",
    "ssl.most-magnitude": "ssl.max-magnitude",
    "xclp.fewest-labeled": "xclp.min-labeled-clients",
}
"""Keys of settings, old and new."""

RENAMED_METHODS = {"perclient-lp": "local-lp", "network-labels": "pseudo-label"}
"""Values of `method`, old and new."""

FLOWER_ROUNDS, ROUNDS = "num-server-rounds", "num-rounds"
"""The number of rounds as Flower's own apps call it, and as it is called here."""


def _with_rounds(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``flat`` with the number of rounds under its name here; 0 under Flower's name is none."""
    found = dict(flat)
    given = found.pop(FLOWER_ROUNDS, 0)
    if given == 0 and given is not False:
        return found
    # Flower passes defaults, too: only another value than the default was set by somebody.
    from fedul_flwr.config.shared import SharedSettings

    if found.get(ROUNDS, given) not in (given, SharedSettings().num_rounds):
        raise UserError(
            f"Settings {FLOWER_ROUNDS} and {ROUNDS} are two names of one: leave one of them out."
        )
    return found | {ROUNDS: given}


def current_names(flat: Mapping[str, Any], *, stored: bool = False) -> dict[str, Any]:
    """Settings under their current names.

    Logs a warning for each old name, unless a program ``stored`` the settings and no person did.

    Raises
    ------
    UserError
        If a setting is there under both names.
    """
    found = {}
    flat = _with_rounds(flat)
    for key, value in flat.items():
        name = RENAMED_KEYS.get(key, key)
        if name != key:
            if name in flat:
                raise UserError(f"Setting {key} is the old name of {name}: leave it out.")
            if not stored:
                _warn(f"Setting {key} is called {name} now")
        found[name] = value
    method = found.get("method")
    if method in RENAMED_METHODS:
        found["method"] = RENAMED_METHODS[method]
        if not stored:
            _warn(f"Method {method!r} is called {found['method']!r} now")
    return found


def _warn(text: str) -> None:
    getLogger("flwr").warning("%s; the next version will not know the old name.", text)
