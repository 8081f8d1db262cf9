"""Modules of somebody's own that a run's settings name, and whether a run of this user named them.

A run's folder may come from anybody, and its settings name Python modules: to load its model is to
run that code. Runs of this user on this machine are kept in a list, with the modules they named.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedul_flwr.config.features import HUB, RUN, TORCHVISION
from fedul_flwr.errors import UserError

KEYS = ("method", "model", "features")
"""Settings that may name a module, as ``package.module:NAME``."""
BUILT_IN = (TORCHVISION, HUB, RUN)
"""Beginnings of names that are ours."""


def list_file() -> Path:
    """File of this user's runs: in ``$XDG_STATE_HOME``, else in ``~/.local/state``."""
    named = os.environ.get("XDG_STATE_HOME")
    base = Path(named) if named else Path.home() / ".local" / "state"
    return base / "fedul-flwr" / "own-modules.jsonl"


def named_modules(settings: Mapping[str, Any]) -> list[str]:
    """References in ``settings`` to modules that are not built in."""
    values = (settings.get(key) for key in KEYS)
    return [v for v in values if isinstance(v, str) and ":" in v and not v.startswith(BUILT_IN)]


def remember_run(directory: Path, settings: Mapping[str, Any]) -> None:
    """Note that a run of this user in ``directory`` named these modules, if it names any."""
    if modules := named_modules(settings):
        line = json.dumps({"run": str(directory.resolve()), "modules": modules})
        # Where it cannot be noted, the user has to name the modules again later.
        with contextlib.suppress(OSError, RuntimeError):
            file = list_file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{line}\n")


def name_again(settings: Mapping[str, Any]) -> str:
    """How to trust the modules of ``settings`` on a command line that takes settings."""
    named = {key: settings[key] for key in KEYS if named_modules({key: settings.get(key)})}
    options = (f"-c '{key}=\"{value}\"'" for key, value in named.items())
    return f"name it again with {' '.join(options)}"


def refuse_strange_modules(
    directory: Path,
    settings: Mapping[str, Any],
    remedy: str,
    given: Mapping[str, Any] | None = None,
) -> None:
    """Refuse modules named in a run's folder that neither this user's run nor the user has named.

    Parameters
    ----------
    directory : the run's folder.
    settings : its settings.
    remedy : what the user can do once the module has been looked at.
    given : settings that the user has given on the command line.

    Raises
    ------
    UserError
        With the first such module.
    """
    trusted = named_modules(given or {})
    strange = [module for module in named_modules(settings) if module not in trusted]
    if strange and not set(strange) <= _remembered(directory.resolve()):
        raise UserError(
            f"{directory} names the module {strange[0]!r}, which would run as you, and is not "
            f"known to be of a run of yours on this machine: if you trust that module, {remedy}."
        )


def _remembered(directory: Path) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError, RuntimeError):
        for line in list_file().read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                if entry["run"] == str(directory):
                    found |= set(entry["modules"])
    return found
