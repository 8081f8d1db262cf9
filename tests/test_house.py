"""Imports run one way through the house, and reach methods by reference only."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
FLOORS = {
    "errors": 0,
    "config": 1,
    "methods": 1,
    "data": 2,
    "surrogate": 3,
    "models": 3,
    "learning": 3,
    "extractors": 4,
    "propagation": 4,
    "secure": 4,
    "federated": 5,
    # These stand on federated, and may use each other.
    **dict.fromkeys(("results", "run", "engine", "experiments", "deploy", "cli", "api"), 6),
    "server_app": 6,
    "client_app": 6,
}
"""A module imports from its own floor and from those below."""
EXCEPTIONS = {("fedul_flwr/learning/pseudo_labels.py", "fedul_flwr.propagation.labels")}
"""Imports that are still to go."""
METHODS = ("strategies", "client_apps", "baselines")


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, also in its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


EXPORTS = Path("fedul_flwr/__init__.py")
"""It imports what it exports on first use, and for type checkers."""
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "fedul_flwr").rglob("*.py"))


def floor(module: str) -> int:
    """Floor of a module of fedul_flwr; of the package itself, which holds the version, 0."""
    parts = module.split(".")
    return FLOORS[parts[1]] if len(parts) > 1 else 0


def is_method(module: str) -> bool:
    """Whether it is, or is in, one of the folders of methods."""
    return module.split(".")[1:2] in [[folder] for folder in METHODS]


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_given_any_module_then_it_imports_from_no_floor_above() -> None:
    above = [
        f"{path} imports {name}"
        for path in FILES
        for name in imported(ROOT / path)
        if path != EXPORTS
        and name.split(".")[0] == "fedul_flwr"
        and not is_method(name)
        and floor(name) > floor(module_of(path))
        and (str(path), name) not in EXCEPTIONS
    ]
    assert above == []


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
        if 0 < floor(module_of(path)) < FLOORS["federated"]
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
GUARD = Path("fedul_flwr/engine/own_connections.py")


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


def test_given_imports_of_what_flower_documents_then_none_is_found() -> None:
    for source in (
        *("from flwr.common import log", "from flwr.serverapp import Grid, RdpAccountant"),
        *("from flwr.serverapp import strategy", "from flwr.clientapp.typing import Mod"),
        *("import flwr_datasets", "from flwr import common"),
        *("from fedul_flwr import errors", "'Ask flwr list.'"),
    ):
        assert undocumented(source) == [], source


def test_the_packages_root_has_six_modules() -> None:
    """They are __init__, server_app, client_app, methods, surrogate and errors."""
    names = {path.name for path in (ROOT / "fedul_flwr").glob("*.py")}
    assert names == {
        *("__init__.py", "server_app.py", "client_app.py"),
        *("methods.py", "surrogate.py", "errors.py"),
    }


def test_strategies_hold_methods_and_base_strategies_alone() -> None:
    names = {path.stem for path in (ROOT / "strategies").glob("*.py")}
    methods = {"fedul", "fedul_finetune", "fedul_mix", "fedmatch", "xclp", "xclp_predict"}
    assert names == {"__init__", *methods, "scaffold", "fednova", "local_only"}


def test_the_names_of_modules_in_experiments_occur_once_in_the_house() -> None:
    own = {path.stem for path in FILES if path.parts[1] == "experiments"} - {"__init__"}
    folders = ("strategies", "client_apps", "baselines")
    others = [path for path in FILES if path.parts[1] != "experiments"]
    others += [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    assert own & {path.stem for path in others} == set()
