"""Programs outside the package, imported from their files."""

import importlib.util
from pathlib import Path
from types import ModuleType


def module_of_file(file: Path) -> ModuleType:
    """What a file of Python defines."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
