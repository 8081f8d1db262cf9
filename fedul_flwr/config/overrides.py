"""Settings from the command line: ``key=value`` pairs and TOML files, in any combination."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedul_flwr.config.user_files import read_text, reason, user_path
from fedul_flwr.errors import UserError

FLOWER_ROUNDS, ROUNDS = "num-server-rounds", "num-rounds"
"""The number of rounds as Flower's own apps call it, and as it is called here."""
_WORD = re.compile(r"[\w./~][\w./~:,+@-]*")
_PAIR = re.compile(r"""\s*([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|\S+)(?:\s+|$)""")


def parse_overrides(values: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Read run-config settings as Flower writes them.

    Parameters
    ----------
    values
        Each is ``key=value key=value …`` with TOML values, or the path of a TOML file. A value that
        is no TOML and one word, such as ``fedul``, is text. Later ones override earlier ones.

    Returns
    -------
    dict
        Flat settings, ``{"num-rounds": 5, "fedul.num-sets": 20}``.

    Examples
    --------
    >>> parse_overrides(["method=fedul num-rounds=5", "fedul.num-sets=20"])
    {'method': 'fedul', 'num-rounds': 5, 'fedul.num-sets': 20}
    """
    settings: dict[str, bool | int | float | str] = {}
    for value in values:
        if value.endswith(".toml") and "=" not in value:
            settings |= flatten(read_toml(user_path(value)))
            continue
        position = 0
        while value[position:].strip():
            pair = _PAIR.match(value, position)
            if pair is None:
                raise UserError(
                    f"--run-config {value!r} cannot be read from {value[position:].strip()!r} on: "
                    "it takes key=value pairs or the path of a .toml file.",
                    "setting-not-readable",
                    option="--run-config",
                )
            key, written = pair.groups()
            try:
                parsed = tomllib.loads(f"{key} = {written}")
            except (ValueError, RecursionError):  # ValueError: more than 4300 digits, too
                if not _WORD.fullmatch(written):
                    raise UserError(
                        f"Setting {key}={written[:100]} is not valid: text needs quotes inside "
                        f"the shell's own, as in -c '{key}=\"{written[:100]}\"'.",
                        "setting-not-readable",
                        setting=key,
                    ) from None
                parsed = tomllib.loads(f'{key} = "{written}"')
            settings |= flatten(parsed)
            position = pair.end()
    return with_rounds(settings)


def read_toml(path: Path) -> dict[str, Any]:
    """Content of a TOML file; UserError if it cannot be read."""
    text = read_text(path)
    if text is None:
        raise UserError(f"{path} cannot be read: No such file or directory.", "file-missing")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(
            f"{path} is not a valid TOML file: it is nested too deeply.", "file-syntax"
        ) from None
    except ValueError as error:
        raise UserError(
            f"{path} is not a valid TOML file: {reason(error)}.", "file-syntax"
        ) from None


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Tables within tables as dotted keys; UserError for a value that no setting can have."""
    flat: dict[str, bool | int | float | str] = {}
    if prefix.count(".") > 2:  # no setting lies so deep
        raise UserError(f"Setting {prefix[:100]}… lies in too many tables.", "setting-not-readable")
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + key] = value
        else:
            raise UserError(
                f"Setting {prefix}{key} = {value!r} must be true, false, a number or text.",
                "setting-wrong-type",
            )
    return flat


def with_rounds(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``flat`` with the number of rounds under its name here; 0 under Flower's name is none."""
    settings = dict(flat)
    rounds = settings.pop(FLOWER_ROUNDS, 0)
    if rounds == 0 and rounds is not False:
        return settings
    # Flower passes defaults, too: only another value than the default was set by somebody.
    from fedul_flwr.config.shared import SharedSettings

    if settings.get(ROUNDS, rounds) not in (rounds, SharedSettings().num_rounds):
        raise UserError(
            f"Settings {FLOWER_ROUNDS} and {ROUNDS} are two names of one: leave one of them out.",
            "settings-contradict",
        )
    return settings | {ROUNDS: rounds}
