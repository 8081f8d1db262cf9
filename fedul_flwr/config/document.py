"""Write ``docs/settings.md`` and the table of defaults from the settings classes themselves.

``python -m fedul_flwr.config.document`` prints the page, with ``toml`` the defaults for
``pyproject.toml``. A test holds both files to this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedul_flwr.config.base import Settings
from fedul_flwr.config.run_config import all_sections
from fedul_flwr.config.shared import SharedSettings


def defaults_toml() -> str:
    """Body of ``[tool.flwr.app.config]``."""
    lines = [_assignment(key, value) for key, value in SharedSettings().to_flat().items()]
    for name, kind in all_sections().items():
        lines += ["", f"[tool.flwr.app.config.{name}]"]
        lines += [_assignment(key, value) for key, value in kind().to_flat().items()]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Markdown of all settings."""
    parts = [
        "# Settings",
        "",
        "Written by `make docs` from the classes in `fedul_flwr/config/`. Set them with",
        "`-c 'key=value key=value'` or `--run-config FILE.toml`; a key of a table is `table.key`.",
        "A key that has no effect in a run (another method's, another base's) is refused.",
        "",
        "## Shared by all methods",
        "",
        *_table(SharedSettings, ""),
    ]
    for name, kind in all_sections().items():
        parts += ["", f"## `{name}`", "", (kind.__doc__ or "").strip().split("\n\n")[0], ""]
        parts += _table(kind, f"{name}.")
    return "\n".join(parts) + "\n"


def _table(kind: type[Settings], prefix: str) -> Iterator[str]:
    yield "| key | default | allowed | meaning |"
    yield "|---|---|---|---|"
    defaults = kind().to_flat()
    for key, field in zip(defaults, kind.model_fields.values(), strict=True):
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        yield f"| `{prefix}{key}` | `{_toml(defaults[key])}` | {_allowed(field)} | {meaning} |"


def _allowed(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{word} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, word in words.items()
        if getattr(rule, name, None) is not None
    ]
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    kind = names.get(field.annotation, "") if isinstance(field.annotation, type) else ""
    return f"{kind} {', '.join(bounds)}".strip()


def _assignment(key: str, value: object) -> str:
    return f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    return json.dumps(value)


if __name__ == "__main__":
    print(defaults_toml() if sys.argv[1:] == ["toml"] else settings_page(), end="")
