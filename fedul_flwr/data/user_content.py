"""What a trial depends on beside its settings: the files and modules that these name.

A trial is reused only as long as they have the same content.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import LOCATION_SETTINGS, RunConfig
from fedul_flwr.config.trusted_modules import BUILT_IN, named_modules
from fedul_flwr.data.safe_files import cache_key

START = "start-from"
_MODELS = "*.safetensors"
"""Files of a run that a run can start from."""
_OURS = "fedul_flwr"


def user_content(config: RunConfig, only: Collection[str] = ()) -> dict[str, str]:
    """SHA-256 of what each setting names, by its key.

    A file or a folder counts with all its content, but for what has the run's own output, and a run
    to start from with its models. A module counts with the user's own modules that it imports.
    Names of data sets, models and modules that are installed do not count, nor does what does not
    exist.

    Parameters
    ----------
    only : keys of the settings that count; by default all do.
    """
    content: dict[str, str] = {}
    flat = config.to_flat()
    for key, value in flat.items():
        if key in LOCATION_SETTINGS or (only and key not in only):
            continue
        if not isinstance(value, str) or not value:
            continue
        modules = _modules(key, value)
        path = Path(value)
        if modules:
            files = sorted(set(_user_files(modules)))
        elif path.is_absolute() and path.exists():
            files = sorted(_files(path, _MODELS if key == START else "*", Path(config.output)))
        else:
            continue
        if files:
            content[key] = _digest(files, path if path.is_dir() else None)
    return content


def changed_content(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Settings whose files or modules have another content now."""
    return (setting for setting, digest in now.items() if then.get(setting, digest) != digest)


def _files(path: Path, pattern: str, output: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    results = path / output.relative_to(path).parts[0] if path in output.parents else None
    for file in path.rglob(pattern):
        if results is not None and file.is_relative_to(results):
            continue
        if file.is_file() and not any(
            part.startswith(".") or part == "__pycache__" for part in file.relative_to(path).parts
        ):
            yield file


def _digest(files: Iterable[Path], folder: Path | None) -> str:
    """Digest of names and contents; of a file outside of ``folder`` the last part of the name."""
    total = hashlib.sha256()
    for file in files:
        name = file.relative_to(folder).as_posix() if folder else file.name
        with suppress(OSError):  # the run itself says what it cannot read
            line = f"{name}\0{_file_digest(file, cache_key('', [file]))}\0"
            total.update(line.encode(errors="surrogateescape"))  # names that are no UTF-8
    return total.hexdigest()


@lru_cache(maxsize=100_000)
def _file_digest(file: Path, _version: str) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _modules(key: str, value: str) -> list[str]:
    """Modules that a setting names: of a method also those of its two sides."""
    if key not in BUILT_IN or not named_modules({key: value}):
        return []
    names = [value]
    if key == "method" and value not in METHODS:
        method = find_method(value)
        classes = (method.strategy_class, method.client_class, *method.tables.values())
        names += [kind.__module__ for kind in classes]
    modules = (name.partition(":")[0] for name in names if name)
    return [name for name in dict.fromkeys(modules) if name.partition(".")[0] != _OURS]


class _Finder(ModuleFinder):
    """Also finds modules in folders without ``__init__.py``, which Python's own trips over."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """File, path and kind of a module."""
        spec = PathFinder.find_spec(name, self.path if path is None else path)
        folders = list((spec and spec.submodule_search_locations) or ())
        if folders and spec is not None and spec.origin is None:
            return None, folders[0], ("", "", _FOLDER)
        return super().find_module(name, path, parent)

    def load_package(self, fqname: str, pathname: str) -> Any:
        """The package of a folder."""
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        package: Any = self.add_module(fqname)
        package.__path__ = [pathname]
        return package


_FOLDER = 5
"""Kind of a package, in Python's own finder."""


def _user_files(modules: Iterable[str]) -> Iterator[Path]:
    """Source files of modules that are not installed, and of those that they import anywhere."""
    kinds = ("stdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in kinds]
    path = [Path(entry).resolve() for entry in sys.path]
    users = [entry for entry in path if not any(map(entry.is_relative_to, installed))]
    finder = _Finder([*map(str, users)], excludes=[_OURS])
    for name in modules:
        with suppress(ImportError, SyntaxError):  # the run itself says what it cannot import
            finder.import_hook(name)
    for module in finder.modules.values():
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py":
            yield file.resolve()
