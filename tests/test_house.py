"""Imports run one way through the house, and reach methods by reference only."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

from benchmarks.house import sentences_of

ROOT = Path(__file__).parents[1]
ORDER = (
    *("lazy", "errors", "arrays", "config", "secure", "data", "surrogate", "models", "learning"),
    *("extractors", "propagation", "federated", "method"),
    *("strategies", "client_apps", "baselines", "results", "run"),
    *("client_app", "server_app", "engine", "experiments", "deploy", "api", "cli", "testing"),
)
"""Packages and modules of fedul_flwr: each imports from those before it alone."""
METHODS = ("strategies", "client_apps", "baselines")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's tree."""
    return [*ast.walk(ast.parse(path.read_text()))]


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, also in its functions."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


EXPORTS = Path("fedul_flwr/__init__.py")
"""It imports what it exports on first use, and for type checkers."""
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "fedul_flwr").rglob("*.py"))
MODULES = {
    module.removesuffix(".__init__"): path
    for folder in ("fedul_flwr", *METHODS)
    for path in (ROOT / folder).rglob("*.py")
    for parts in [path.relative_to(ROOT).with_suffix("").parts]
    for module in [".".join(parts if folder == "fedul_flwr" else ("fedul_flwr", *parts))]
    if path != ROOT / EXPORTS
}
"""Every module by its name."""


def floor(module: str) -> int:
    """Place of a module in the order; of the package itself, which holds the version, -1."""
    parts = module.split(".")
    return ORDER.index(parts[1]) if len(parts) > 1 else -1


def modules_imported(path: Path) -> set[str]:
    """Modules of fedul_flwr that a file imports, also in its functions and for type checkers."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def is_method(module: str) -> bool:
    """Whether it is, or is in, one of the folders of methods."""
    return module.split(".")[1:2] in [[folder] for folder in METHODS]


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_given_any_module_then_it_imports_from_packages_before_its_own() -> None:
    above = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name in modules_imported(path)
        if floor(name) > floor(module)
    ]
    assert above == []


def test_given_all_imports_then_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: modules_imported(path) - {module} for module, path in MODULES.items()}
    assert len([*TopologicalSorter(graph).static_order()]) == len(MODULES)


def test_given_any_module_then_it_names_methods_by_reference_only() -> None:
    named = [
        f"{path} imports {name}"
        for path in FILES
        for name in imported(ROOT / path)
        if is_method(name)
    ]
    assert named == []


def test_below_federated_nobody_imports_flower() -> None:
    found = [
        str(path)
        for path in FILES
        if path != EXPORTS and floor(module_of(path)) < ORDER.index("federated")
        for name in imported(ROOT / path)
        if name.split(".")[0] == "flwr"
    ]
    assert found == []


PUBLIC = {
    *("flwr.app", "flwr.client", "flwr.common", "flwr.simulation"),
    *("flwr.clientapp", "flwr.clientapp.mod", "flwr.clientapp.typing"),
    *("flwr.serverapp", "flwr.serverapp.exception", "flwr.serverapp.strategy"),
}
"""Modules that Flower documents; of these, what they export."""
INTERNALS = Path("fedul_flwr/federated/flower_internals.py")
GUARD = Path("fedul_flwr/engine/superlink_guard.py")


def is_public(module: str, name: str) -> bool:
    if module not in PUBLIC:
        return f"{module}.{name}" in PUBLIC
    found = importlib.import_module(module)
    is_module = isinstance(getattr(found, name, None), ModuleType)
    return f"{module}.{name}" in PUBLIC or name in getattr(
        found, "__all__", [name] * (not is_module)
    )


def undocumented(source: str) -> list[str]:
    """Names that a program imports from Flower and Flower does not document."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("flwr."):
            found += [
                f"{node.module}.{a.name}"
                for a in node.names
                if not is_public(str(node.module), a.name)
            ]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if f"{a.name}.".startswith("flwr.")]
            found += [name for name in names if name not in PUBLIC]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # perhaps a program
            found += re.findall(r"^\s*(?:from|import) (flwr\b.*)", node.value, re.MULTILINE)
    return found


def test_what_flower_does_not_document_is_imported_in_two_modules_five_names_each() -> None:
    """A release of Flower, every few weeks, may rename it."""
    found = {
        path.relative_to(ROOT): undocumented(path.read_text())
        for package in ("fedul_flwr", *METHODS)
        for path in (ROOT / package).rglob("*.py")
    }
    assert 1 <= len(found.pop(INTERNALS)) <= 5
    assert 1 <= len(found.pop(GUARD)) <= 5
    assert not {path: names for path, names in found.items() if names}


def test_given_imports_of_what_flower_does_not_document_then_each_is_found() -> None:
    for source in (
        *("from flwr.supercore.run import Run", "import flwr.proto", "import flwr"),
        *("from flwr.common import constant", "from flwr.app import message"),
        "def f():\n    from flwr.common.serde import fab_to_proto",
        "PROGRAM = 'import os\\nfrom flwr.superlink.cli import flower_superlink'",
    ):
        assert len(undocumented(source)) == 1, source


def test_few_tests_ask_for_sentences_which_a_golden_file_has() -> None:
    tests = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    assert sum(len(list(sentences_of(test))) for test in tests) <= 150


NO_NAMES = {"found", "known", "told", "own", "kept", "given", "held", "place"}


def named(path: Path) -> Iterator[str]:
    """Names that a file gives to classes, functions, parameters, variables and attributes."""
    for node in nodes(path):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def test_names_say_what_a_thing_is() -> None:
    """A participle alone, as in ``found``, says nothing of it."""
    for package in ("fedul_flwr", "strategies", "client_apps", "baselines"):
        for file in (ROOT / package).rglob("*.py"):
            names = {name.strip("_").lower() for name in named(file)}
            assert not names & NO_NAMES, file
