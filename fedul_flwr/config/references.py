"""Objects named by ``package.module:name``."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError

USER_PATH = "FEDUL_PATH"
"""Environment variable: directory with modules of the user's own (default: the current one)."""


def load_reference(reference: str, setting: str) -> Any:
    """Import what ``package.module:name`` refers to; ``setting`` is named in errors."""
    module, _, attribute = reference.partition(":")
    own = os.environ.get(USER_PATH) or str(Path.cwd())
    if own not in sys.path:
        sys.path.append(own)  # last, so that nothing there shadows an installed module
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"Setting {setting} = {reference!r}: must be 'package.module:name'.")
    try:
        imported = importlib.import_module(module)
    except ImportError as err:
        raise UserError(f"Setting {setting} = {reference!r}: cannot import it ({err}).") from err
    try:
        return getattr(imported, attribute)
    except AttributeError:
        raise UserError(
            f"Setting {setting} = {reference!r}: module {module!r} has no {attribute!r}."
        ) from None
