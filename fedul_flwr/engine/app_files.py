"""The Flower app's files: their directory, and which of them are sent to the SuperLink."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fedul_flwr.errors import UserError

METHODS = ("strategies", "client_apps", "baselines")
"""Folders of methods: in a wheel inside ``fedul_flwr``, in a checkout and in the app beside it."""


def app_directory() -> Path:
    """Return the directory of this Flower app.

    Returns
    -------
    Path
        The repository root of an editable install. For an installed wheel, a temporary directory
        with copies of the installed packages, removed when the interpreter exits.
    """
    package = Path(__file__).resolve().parents[1]
    project = package.parent / "pyproject.toml"
    if project.is_file() and "[tool.flwr.app]" in project.read_text(encoding="utf-8"):
        return package.parent
    if not (package / "app_pyproject.toml").is_file():
        raise UserError(
            f"The Flower app's pyproject.toml is missing beside {package}; install fedul-flwr anew."
        )
    app = Path(tempfile.mkdtemp(prefix="fedul-app-"))
    atexit.register(shutil.rmtree, app, ignore_errors=True)
    for name in METHODS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package / name, app / name, ignore=ignore)
    others = ("__pycache__", "app_*.toml", "app_*.md", "paper_tables")
    ignore = shutil.ignore_patterns(*others, *METHODS)
    shutil.copytree(package, app / package.name, ignore=ignore)
    shutil.copyfile(package / "app_pyproject.toml", app / "pyproject.toml")
    for name, kept in (("README.md", "app_README.md"), ("LICENSE", "app_LICENSE.md")):
        shutil.copyfile(package / kept, app / name)
    return app


def copy_app(root: Path, place: Path) -> None:
    """Copy an app's files, and no others: ``flwr run`` would search virtual environments, too.

    Parameters
    ----------
    root : folder with the app's ``pyproject.toml``.
    place : new folder for the copy.

    Raises
    ------
    UserError
        If there is no app.
    """
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"The Flower app in {root} cannot be packed: {error}") from error
    patterns = project.get("tool", {}).get("flwr", {}).get("app", {}).get("fab-include")
    if patterns is None:
        files = list(app_files(root))
    else:
        always = [root / name for name in ("pyproject.toml", ".gitignore")]
        files = [path for path in always if path.is_file()]
        files += [path for pattern in patterns for path in root.glob(pattern.lstrip("/"))]
    for path in files:
        copy = place / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def app_files(root: Path) -> Iterator[Path]:
    """Files that may belong to the app in ``root``, without virtual environments."""
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = [
            name
            for name in names
            if not name.startswith(".")
            and name != "__pycache__"
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            path = here / name
            if not path.is_symlink():
                yield path
