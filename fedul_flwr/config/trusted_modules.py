"""Modules of somebody's own that a run's settings name, and whether a run of this user named them.

A run's folder may come from anybody, and its settings name Python modules: to load its model is to
run that code. Runs of this user on this machine are kept in a list, with the modules they named.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedul_flwr.config.base import USER_PATH, module_folder
from fedul_flwr.config.shared import HUB, RUN, TORCHVISION, is_function
from fedul_flwr.errors import UserError

START = "start-from"  # may also be a path
BUILT_IN: dict[str, tuple[str, ...]] = {
    "method": (),
    "base": (),
    "model": (TORCHVISION,),
    "features": (TORCHVISION, HUB, RUN),
    "optimizer": (),
    "augment": (),
    "stage": (),
    "callback": (),
    START: (),
}
"""Settings that may name a module, as ``package.module:NAME``, and beginnings of values that
do not."""


def list_file() -> Path:
    """File of this user's runs: in ``$XDG_STATE_HOME``, else in ``~/.local/state``."""
    named = os.environ.get("XDG_STATE_HOME")
    base = Path(named) if named else Path.home() / ".local" / "state"
    return base / "fedul-flwr" / "own-modules.jsonl"


def named_modules(settings: Mapping[str, Any]) -> list[str]:
    """References in ``settings`` to modules that are not built in."""
    return [
        value
        for key, prefixes in BUILT_IN.items()
        if isinstance(value := settings.get(key), str)
        and ":" in value
        and not value.startswith(prefixes)
        and (key != START or is_function(value))
    ]


def remember_run(directory: Path, settings: Mapping[str, Any]) -> None:
    """Note that a run of this user in ``directory`` named these modules, if it names any, and the
    folder of each; it is empty for an installed one."""
    if modules := named_modules(settings):
        folder = module_folder()
        folders = {name: str(folder) if _is_in(folder, name) else "" for name in modules}
        line = json.dumps({"run": str(directory.resolve()), "modules": folders})
        # Where it cannot be noted, the user has to name the modules again later.
        with contextlib.suppress(OSError, RuntimeError):
            file = list_file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{line}\n")


def _is_in(folder: Path, reference: str) -> bool:
    top = re.split(r"[.:]", reference)[0]
    return (folder / top).is_dir() or (folder / f"{top}.py").is_file()


def name_again(settings: Mapping[str, Any]) -> str:
    """How to trust the modules of ``settings`` on a command line that takes settings."""
    named = {key: settings[key] for key in BUILT_IN if named_modules({key: settings.get(key)})}
    options = (f"-c '{key}=\"{value}\"'" for key, value in named.items())
    return f"name it again with {' '.join(options)}"


def require_trusted_modules(
    directory: Path,
    settings: Mapping[str, Any],
    remedy: str,
    overrides: Mapping[str, Any] | None = None,
) -> Path | None:
    """Refuse modules named in a run's folder that neither this user's run nor the user named."""
    named = set(named_modules(settings)) - set(named_modules(overrides or {}))
    folders = _remembered(directory.resolve())
    for module in sorted(named):
        elsewhere = overrides is not None and folders.get(module) not in ("", str(module_folder()))
        if module in folders and not elsewhere:
            continue
        why = "would run as you, and is not known to be of a run of yours on this machine"
        if module in folders:
            why = f"that run took from {folders[module]} ({USER_PATH})"
        raise UserError(
            f"{directory} names the module {module!r}, which {why}: if you trust that module, "
            f"{remedy}.",
            "module-not-trusted",
        )
    return next((Path(folders[module]) for module in sorted(named) if folders[module]), None)


def _remembered(directory: Path) -> dict[str, str]:
    """Modules that runs of this user in ``directory`` named, with the folder of each or ""."""
    folders: dict[str, str] = {}
    with contextlib.suppress(OSError, RuntimeError):
        for line in list_file().read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                if entry["run"] == str(directory):
                    modules = entry["modules"]  # earlier versions wrote a list without folders
                    named = modules if isinstance(modules, dict) else dict.fromkeys(modules, "")
                    folders |= {str(name): str(folder) for name, folder in named.items()}
    return folders
