"""Pages from the templates beside this file, and their pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: str, **values: Any) -> str:
    """A page from a template beside this file; values are text in HTML, and cells in Markdown."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and ".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    return environment.get_template(template).render(values)
