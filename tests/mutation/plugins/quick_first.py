"""A plugin of pytest for mutmut's runs, of which there is one for every mutant: no time is lost.

Quick tests come first, which find most mutants. All modules are loaded before: their objects are
out of the garbage collector's way. What functions of a piece have cached in an earlier run of
pytest is forgotten: a changed function would not be called.
"""

import gc
import json
import logging
import sys
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Leave what is there already out of every later collection; let Flower's log go on.

    mutmut runs pytest several times in a process, and the first run has closed what Flower found as
    stderr.
    """
    forget_cached()
    gc.freeze()
    for handler in logging.getLogger("flwr").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.stream = sys.__stderr__  # setStream would write to the old one


def forget_cached() -> None:
    """Clear the caches of the modules that mutmut has changed."""
    for module in [module for name, module in sys.modules.items() if name.startswith("fedul_flwr")]:
        values = vars(module)
        if any("__mutmut_" in name for name in values):
            for value in [*values.values()]:
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by the seconds that mutmut has measured; new ones come first."""
    measured = Path("mutmut-stats.json")
    if measured.is_file():
        seconds = json.loads(measured.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
