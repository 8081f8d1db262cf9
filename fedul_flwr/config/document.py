"""Settings in words, from their classes: keys, defaults, allowed values and meanings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from fedul_flwr.config.base import AUTO, KINDS, OnlyWith, Settings, any_of, shown, word_of
from fedul_flwr.config.run_config import all_sections
from fedul_flwr.config.shared import SharedSettings


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
