"""Objects named by ``package.module:name``."""

from __future__ import annotations

import importlib
from typing import Any

from fedul_flwr.errors import UserError


def load_reference(reference: str, setting: str) -> Any:
    """Import what ``package.module:name`` refers to; ``setting`` is named in errors."""
    module, _, attribute = reference.partition(":")
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
