"""Write ``docs/settings.md`` and the table of defaults from the settings classes.

``python -m fedul_flwr.config.document`` prints the page, with ``toml`` the defaults for
``pyproject.toml``. A test compares both files with this output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from fedul_flwr.config.base import AUTO, KINDS, OnlyWith, Settings, any_of, shown, word_of
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import all_sections, users_of
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.config.user_files import FLOWER_ROUNDS, ROUNDS


def defaults_toml() -> str:
    """Body of ``[tool.flwr.app.config]``."""
    lines = []
    for key, value in SharedSettings().to_flat().items():
        lines.append(_assignment(key, value))
        if key == ROUNDS:  # Flower accepts no key that is not here
            lines.append(_assignment(FLOWER_ROUNDS, 0))
    for name, kind in all_sections().items():
        lines += ["", f"[tool.flwr.app.config.{name}]"]
        lines += [_assignment(key, value) for key, value in kind().to_flat().items()]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Markdown of all settings."""
    parts = [
        "# Settings",
        "",
        "Written by `make docs` from the classes of settings and the methods. Set them with",
        "`-c 'key=value key=value'` or `--run-config FILE.toml`; a key of a table is `table.key`.",
        "A key that needs another method, other data or another setting than the run has is",
        "refused; what it needs is behind its meaning.",
        "",
        "## Shared by all methods",
        "",
        *_table(SharedSettings),
        "",
        "## Methods",
        "",
        "| method | how it learns | data that it needs | paper |",
        "|---|---|---|---|",
        *(f"| `{m.name}` | {m.line} | {m.needs} | {m.paper} |" for m in METHODS.values()),
    ]
    for name, kind in all_sections().items():
        parts += ["", f"## `{name}`", "", introduction(kind), ""]
        parts += [f"Only with `{users_of(name)}`.", ""]
        parts += _table(kind)
    return "\n".join(parts) + "\n"


class SettingNote(NamedTuple):
    """Description of a setting."""

    key: str
    default: str
    allowed: tuple[str, ...]
    meaning: str

    @property
    def has_choices(self) -> bool:
        """Whether ``allowed`` is a list of values."""
        return len(self.allowed) > 1


def describe(kind: type[Settings]) -> Iterator[SettingNote]:
    """All settings of a class."""
    prefix = f"{kind.table}." if kind.table else ""
    defaults = kind().to_flat()
    for key, field in zip(defaults, kind.model_fields.values(), strict=True):
        meaning = " ".join((field.description or "").split())
        rules = kind.rules().get(key.replace("-", "_"), ())
        if always := [_as_code(rule) for rule in rules if not rule.of]:
            meaning += f" Only {' and '.join(always)}."
        for rule in rules:
            values = any_of([f"`{shown(value)}`".replace("'", "") for value in rule.of])
            meaning += f" {values} only {_as_code(rule)}." * bool(rule.of)
        yield SettingNote(prefix + key, json.dumps(defaults[key]), _allowed(field), meaning)


def every_setting() -> list[SettingNote]:
    """All settings: the shared ones, then those of every table."""
    kinds: list[type[Settings]] = [SharedSettings, *all_sections().values()]
    return [note for kind in kinds for note in describe(kind)]


def _as_code(rule: OnlyWith) -> str:
    word, what, more = rule.words
    return f"{word} {what if rule.key in KINDS else f'`{what}`'} {more}".strip()


def introduction(kind: type[Settings]) -> str:
    """First paragraph of a class's docstring."""
    return (kind.__doc__ or "").strip().split("\n\n")[0]


def _table(kind: type[Settings]) -> Iterator[str]:
    yield "| key | default | allowed | meaning |"
    yield "|---|---|---|---|"
    for note in describe(kind):
        allowed = ", ".join(f"`{value}`" if note.has_choices else value for value in note.allowed)
        meaning = note.meaning.replace("|", "\\|")
        yield f"| `{note.key}` | `{note.default}` | {allowed} | {meaning} |"


def _allowed(field: FieldInfo) -> tuple[str, ...]:
    if get_origin(field.annotation) is Literal:
        return tuple(map(str, get_args(field.annotation)))
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{word} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, word in words.items()
        if getattr(rule, name, None) is not None
    ]
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    kind = names.get(field.annotation, "") if isinstance(field.annotation, type) else ""
    text = f"{kind} {', '.join(bounds)}".strip()
    word = word_of(field) or (AUTO if field.default == AUTO else "")
    return (f"{word} or {text}" if word else text,)


def _assignment(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value)}"


if __name__ == "__main__":
    print(defaults_toml() if sys.argv[1:] == ["toml"] else settings_page(), end="")
