"""The sentences of all errors, by their codes: ``python -m tests.sentences`` writes them anew.

They are read from the source. A changed sentence shows in ``tests/golden/sentences.txt`` alone; all
other tests ask for codes and values.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "golden" / "sentences.txt"
PACKAGES = ("fedul_flwr", "strategies", "client_apps", "baselines")
PASSED_ON = "passed-on"
"""In place of the code where an error is raised again with a longer sentence."""


class Site(NamedTuple):
    """A place that builds an error: where it is, the error's class, code and sentence."""

    where: str
    kind: str
    code: str
    sentence: str


@cache
def trees() -> dict[str, ast.Module]:
    """The source of the four packages, by file."""
    files = [file for name in PACKAGES for file in sorted((ROOT / name).rglob("*.py"))]
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text())
        for file in files
        if not any(parent.is_symlink() for parent in file.parents)
    }


@cache
def default_codes() -> dict[str, str]:
    """Every class of errors that users see, with its code; empty where each error names one."""
    found = {"UserError": ""}
    classes = [
        node
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    while new := [
        (node, parents[0])
        for node in classes
        if node.name not in found
        and (parents := [ast.unparse(base) for base in node.bases if ast.unparse(base) in found])
    ]:
        for node, parent in new:
            texts = [
                ast.literal_eval(line.value)
                for line in node.body
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"
            ]
            found[node.name] = texts[0] if texts else found[parent]
    return found


def sites() -> Iterator[Site]:
    """Every call of a class of errors, and the rules of settings, which pydantic turns into one."""
    codes = default_codes()
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            kind = ast.unparse(node.func).rpartition(".")[2]
            where = f"{file}:{node.lineno}"
            if kind in ("setting_error", "wrong"):
                given = [*node.args, ast.Constant("reference-wrong")]
                why, code = given[-3:-1] if len(node.args) > 1 else given
                sentence = f"Setting {{key}} = {{value}}: {template(_assigned(why, tree))}."
                yield Site(where, "UserError", _code(_assigned(code, tree)), sentence)
            elif kind == "ValueError" and file.startswith("fedul_flwr/config/"):
                yield Site(where, kind, "setting-not-allowed", template(node.args[0]))
            elif kind in codes:
                named = next((k.value for k in node.keywords if k.arg == "code"), None)
                named = named or (node.args[1] if len(node.args) > 1 else None)
                yield Site(where, kind, _code(named) or codes[kind], template(node.args[0]))


def _assigned(node: ast.expr, tree: ast.Module) -> ast.expr:
    """What was assigned last to a name, before the line of ``node``."""
    if not isinstance(node, ast.Name):
        return node
    values = [
        (line.lineno, line.value)
        for line in ast.walk(tree)
        if isinstance(line, ast.Assign)
        and ast.unparse(line.targets[0]) == node.id
        and line.lineno < node.lineno
    ]
    return max(values, key=lambda pair: pair[0])[1] if values else node


def _code(named: ast.expr | None) -> str:
    if isinstance(named, ast.Constant):
        return str(named.value)
    return PASSED_ON if named and "code" in ast.unparse(named).lower() else ""


def template(node: ast.expr) -> str:
    """A sentence with the names of its values in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return "{" + ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node) + "}"


def listing() -> str:
    """All codes with their sentences."""
    lines = {f"{site.code}: {site.sentence!r}\n" for site in sites()}
    return "".join(sorted(lines))


if __name__ == "__main__":
    FILE.write_text(listing())
