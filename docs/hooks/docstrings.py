"""Docstrings as this project writes them, put into the words of Numpydoc for the site.

Types stand in annotations alone, so ``name : what it is`` and the line below ``Returns`` are text,
where Numpydoc has types. References of Sphinx become code.
"""

import re
from textwrap import indent
from typing import Any

from griffe import Extension, Object

SECTION = re.compile(r"^(\w+)\n(-{3,})\n", flags=re.MULTILINE)
ITEM = re.compile(r"^(\*{0,2}\w+(?:, \w+)*) : (.*)$", flags=re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data):`+~?([^`]+)`+")


class Docstrings(Extension):
    """Rewrites the docstring of every object before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = numpydoc(obj.docstring.value)


def numpydoc(text: str) -> str:
    """``text`` with descriptions where Numpydoc looks for them."""
    head, *sections = SECTION.split(ROLE.sub(r"`\1`", text))
    parts = [head]
    for title, line, body in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
        if title in ("Returns", "Yields"):
            described = f":\n{indent(body, '    ')}"
        else:
            described = ITEM.sub(r"\1\n    \2", body)
        parts.append(f"{title}\n{line}\n{described}")
    return "".join(parts)
