"""Write ``docs/settings.md`` and the table of defaults from the settings classes.

``python -m docs.hooks.settings`` prints the page, with ``toml`` the defaults for
``pyproject.toml``. A test compares both files with this output.
"""

import json
import sys
from collections.abc import Iterator

from fedul_flwr.config.base import Settings
from fedul_flwr.config.document import describe, introduction
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import all_sections, users_of
from fedul_flwr.config.sections import StudySettings
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
        users = "In all runs." if kind is StudySettings else f"Only with `{users_of(name)}`."
        parts += [users, ""]
        parts += _table(kind)
    return "\n".join(parts) + "\n"


def _table(kind: type[Settings]) -> Iterator[str]:
    yield "| key | default | allowed | meaning |"
    yield "|---|---|---|---|"
    for note in describe(kind):
        allowed = ", ".join(f"`{value}`" if note.has_choices else value for value in note.allowed)
        meaning = note.meaning.replace("|", "\\|")
        yield f"| `{note.key}` | `{note.default}` | {allowed} | {meaning} |"


def _assignment(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value)}"


if __name__ == "__main__":
    print(defaults_toml() if sys.argv[1:] == ["toml"] else settings_page(), end="")
