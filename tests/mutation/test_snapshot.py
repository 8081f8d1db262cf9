"""Decorated functions written in two steps, and what git would see in the copy."""

import subprocess
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("libcst", reason="make mutants installs it")

from tests.mutation import snapshot


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
