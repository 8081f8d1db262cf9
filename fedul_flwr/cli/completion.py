"""Completion of methods, settings and their values in a shell."""

from __future__ import annotations

from collections.abc import Iterator


def complete_method(incomplete: str) -> Iterator[tuple[str, str]]:
    """Names of methods with their descriptions."""
    from fedul_flwr.config.methods import METHOD_NOTES

    return ((n, note.line) for n, note in METHOD_NOTES.items() if n.startswith(incomplete))


def complete_setting(incomplete: str) -> Iterator[str]:
    """Names of settings and of their tables."""
    from fedul_flwr.config.run_config import all_sections, default_flat

    return (name for name in (*all_sections(), *default_flat()) if name.startswith(incomplete))


def complete_assignment(incomplete: str) -> Iterator[str]:
    """The last ``key=value`` of settings: its key, or its value if there are some to choose from.

    Parameters
    ----------
    incomplete : one or more assignments, the last one unfinished: ``num-rounds=5 method=fed``.
    """
    before, space, last = incomplete.rpartition(" ")
    key, sign, value = last.partition("=")
    if not sign:
        from fedul_flwr.config.run_config import default_flat

        found = [f"{known}=" for known in default_flat() if known.startswith(key)]
    else:
        found = [f"{key}={known}" for known in choices(key) if known.startswith(value)]
    return (before + space + text for text in found)


def choices(key: str) -> tuple[str, ...]:
    """Values that a setting takes, or of `method`, `dataset` and `model` those that have a name.

    Empty for numbers and other text.
    """
    from fedul_flwr.config.document import every_setting
    from fedul_flwr.config.methods import METHODS
    from fedul_flwr.config.training_settings import MODEL_NAMES
    from fedul_flwr.data.sources import KNOWN_DATASETS

    named = {
        "method": tuple(METHODS),
        "dataset": tuple(known.name for known in KNOWN_DATASETS),
        "model": MODEL_NAMES,
    }
    if key in named:
        return named[key]
    for note in every_setting():
        if note.key == key and note.default in ("true", "false"):
            return ("true", "false")
        if note.key == key and note.has_choices:
            return note.allowed
    return ()
