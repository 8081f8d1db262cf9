"""Decorated functions written in two steps, and what git would see in the copy."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst", reason="make mutants installs it")

from tests.mutation import snapshot

DECORATED = """
from contextlib import contextmanager
from functools import cache, cached_property

def twice(function):
    return lambda *given: 2 * function(*given)

@twice
@cache
def four():
    return 4

@contextmanager
def within(list):
    list.append("begin")
    yield
    list.append("end")

class Thing:
    @property
    def size(self):
        return 3

    @size.setter
    def size(self, value):
        raise ValueError(value)

    @cached_property
    def once(self):
        return object()

    @classmethod
    def name(cls):
        return cls.__name__
"""


def test_a_program_means_the_same_without_decorators() -> None:
    text = snapshot.undecorated(DECORATED)
    assert text.count("@") == 2  # the setter and the classmethod, which mutmut knows
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["four"]() == 8
    said: list[str] = []
    with names["within"](said):
        said.append("middle")
    assert said == ["begin", "middle", "end"]
    thing = names["Thing"]()
    assert (thing.size, thing.name(), thing.once is thing.once) == (3, "Thing", True)
    with pytest.raises(ValueError, match="7"):
        thing.size = 7


def test_the_copy_follows_the_repository(tmp_path: Path) -> None:
    repository, copy = tmp_path / "repository", tmp_path / "copy"
    (repository / "tests").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / ".gitignore").write_text("ignored.py\n")
    (repository / "pyproject.toml").write_text('[tool.other]\nkey = "value"\n')
    (repository / "strategies").mkdir()
    (repository / "fedul_flwr").mkdir()
    (repository / "fedul_flwr" / "strategies").symlink_to("../strategies")
    for name in ("ignored.py", "a.py", "strategies/b.py", "tests/test_a.py", "tests/test_old.py"):
        (repository / name).write_text("@property\ndef f(self): return 1\n")

    def refresh() -> bool:
        return snapshot.refresh(repository, copy, ["a.py"], ["tests"], True)

    assert refresh()
    assert not (copy / "ignored.py").exists()
    assert "f = property(f)" in (copy / "a.py").read_text()
    assert (copy / "fedul_flwr" / "strategies" / "b.py").is_file()
    assert not (copy / "strategies").exists()
    assert "@property" in (copy / "tests" / "test_a.py").read_text()
    settings = tomllib.loads((copy / "pyproject.toml").read_text())["tool"]
    assert settings["other"] == {"key": "value"}
    assert settings["mutmut"]["only_mutate"] == ["a.py"]
    time = (copy / "a.py").stat().st_mtime_ns
    assert not refresh()
    assert (copy / "a.py").stat().st_mtime_ns == time  # mutmut would begin anew
    (repository / "tests" / "test_old.py").unlink()
    (repository / "tests" / "test_a.py").write_text("")
    assert refresh()
    assert not (copy / "tests" / "test_old.py").exists()
    assert (copy / "tests" / "test_a.py").read_text() == ""
