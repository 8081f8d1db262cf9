"""What `make mutants` counts, names and fails for; mutmut itself runs in none of these tests."""

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import __main__ as mutation

MUTATED_FOLDERS = ("learning", "propagation", "secure", "secure/hamming", "client_apps")
MUTATED_FOLDERS += ("strategies", "baselines", "federated")
IN_NO_PIECE = {
    f"fedul_flwr/federated/{name}.py"
    for name in (
        # What travels and how: tests change whole messages, and compare bits at both ends.
        *("grid", "messages", "wire"),
        # Who takes part, what a reply must be, and what is recorded: no mathematics.
        *("client_text", "disclosure", "dispatch", "nodes", "owner_log"),
        *("flower_internals", "replies", "round_record"),
    )
}

FILE = "package/module.py"
MUTATED = '''
def double(x):
    pass

def x_double__mutmut_orig(x):
    """Twice x."""
    y = x * 2.0
    return y

def x_double__mutmut_1(x):
    """Twice x."""
    y = x / 2.0
    return y

def x_double__mutmut_2(x):
    """Twice x."""
    y = x * 2.00
    return y

def x_double__mutmut_3(x):
    """Twice x."""
    y = None
    return y
'''
DIVIDED = "double: y = x * 2.0 -> y = x / 2.0"


@pytest.fixture
def good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """``good(codes) -> (whether the piece is good, what was printed)``."""
    monkeypatch.setattr(mutation, "RESULTS", tmp_path)
    place = tmp_path / "piece" / "mutants" / FILE
    place.parent.mkdir(parents=True)
    place.write_text(MUTATED)

    def report(codes: list[int | None]) -> tuple[bool, str]:
        keys = {f"package.module.x_double__mutmut_{i}": code for i, code in enumerate(codes, 1)}
        Path(f"{place}.meta").write_text(json.dumps({"exit_code_by_key": keys}))
        return mutation.report("piece", [FILE]), capsys.readouterr().out

    return report


def test_all_killed_is_good(good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "SAME_PROGRAM", (r"\* 2.0 -> y = x /",))
    assert "1 killed (0 as they took too long), 0 survived, 1 the same" in good([0, 0, 1])[1]
    # The second mutant writes the same number in another way.
    assert good([1, 0, 1]) == (
        True,
        "piece: 2 mutants, 2 killed (0 as they took too long), 0 survived, 0 the same program; "
        "100.0 %\n",
    )


@pytest.mark.parametrize("code", [0, 5, 33])  # tests passed, or there was none
def test_too_many_survivors_are_named(good: Any, code: int) -> None:
    found, text = good([code, 0, 1])
    assert not found
    assert "1 killed (0 as they took too long), 1 survived, 0 the same program; 50.0 %" in text
    assert f"survived: {FILE}\n    {DIVIDED}\n" in text


def pieces() -> dict[str, Any]:
    return tomllib.loads((Path(mutation.__file__).parent / "pieces.toml").read_text())


def test_every_file_of_a_method_is_in_one_piece() -> None:
    found = [file for piece in pieces().values() for file in mutation.files_of(piece)]
    assert len(found) == len(set(found))
    package = mutation.REPOSITORY / "fedul_flwr"
    there = {package / "surrogate.py"}
    there |= {path for folder in MUTATED_FOLDERS for path in (package / folder).glob("*.py")}
    names = {
        str(path.relative_to(mutation.REPOSITORY)) for path in there if path.name != "__init__.py"
    }
    assert set(found) & names == names - IN_NO_PIECE
    assert names >= IN_NO_PIECE


def test_what_a_piece_names_is_there() -> None:
    for name, piece in pieces().items():
        for pattern in [*piece["files"], *piece.get("without", [])]:
            assert [*mutation.REPOSITORY.glob(pattern)], (name, pattern)
        for test in piece["tests"]:
            file, *inner = test.removeprefix("--deselect=").partition("[")[0].split("::")
            path = mutation.REPOSITORY / file
            assert path.exists(), (name, test)
            if inner:
                tree = ast.parse(path.read_text())
                assert defined(tree, inner), (name, test)


def defined(tree: ast.AST, names: list[str]) -> bool:
    """Whether a module has the function, or the class with the function, of a test's name."""
    for name in names:
        inside = [
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if not inside:
            return False
        tree = inside[0]
    return True
