"""A copy of the repository for a piece, prepared for mutmut.

mutmut leaves decorated functions alone. In the copy ``@d def f`` is therefore written as what it
means, ``def f`` and then ``f = d(f)``, and mutmut changes the plain ``f``. Numba cannot compile
what mutmut makes of a loop: a piece with ``numba = false`` runs its loops as Python.
"""

import json
import re
import subprocess
from pathlib import Path

import libcst as cst

SOURCES = ["fedul_flwr"]
METHODS = ("strategies", "client_apps", "baselines")
"""In the copy they lie in fedul_flwr, as in a wheel: mutmut takes modules' names from paths."""
OTHERS = [
    "tests",
    "examples",
    "experiments",
    "docs",
    "results",
    "benchmarks",
    "README.md",
    "Makefile",
]

# Messages of errors and of the log may change; so may what is not in the text of a function.
IGNORED_LINES = [r"^\s*raise\b", r"^\s*log\(", r"^\s*warnings\.warn\("]


def refresh(repository: Path, copy: Path, files: list[str], tests: list[str], numba: bool) -> bool:
    """Bring the copy up to date; whether it was not. mutmut looks at the times of files."""
    changed = False
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    wanted = {
        f"fedul_flwr/{name}" if name.startswith(METHODS) else name: repository / name
        for name in listed
        if name and (repository / name).is_file()
    }
    for path in [*SOURCES, *OTHERS]:
        for root in (copy, copy / "mutants"):
            for old in [p for p in (root / path).rglob("*.py") if p.is_file()]:
                if str(old.relative_to(root)) not in wanted:
                    old.unlink()
    for name, source in wanted.items():
        target = copy / name
        content = source.read_bytes()
        if name in files:
            content = undecorated(content.decode(), numba).encode()
        if name == "pyproject.toml":
            content += configuration(files, tests).encode()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            changed = True
    return changed


def configuration(files: list[str], tests: list[str]) -> str:
    """mutmut's part of ``pyproject.toml``."""
    marks = "not slow and not ray and not realdata"
    # The one on unraisable exceptions collects garbage ten times in every run.
    plugins = ["-p", "no:xdist", "-p", "no:unraisableexception", "-p", "quick_first"]
    lines = {
        "source_paths": SOURCES,
        "also_copy": OTHERS,
        "only_mutate": files,
        "do_not_mutate_patterns": IGNORED_LINES,
        "pytest_add_cli_args": ["-m", marks, *plugins, "--hypothesis-seed=0"],
        "pytest_add_cli_args_test_selection": tests,
        "timeout_multiplier": 6.0,
        "timeout_constant": 4.0,
        "track_dependencies": False,
        "use_git_change_detection": False,
    }
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in lines.items())
    return f"\n[tool.mutmut]\n{text}\n"


def undecorated(source: str, numba: bool = True) -> str:
    """The program with every ``@d def f`` written as ``def f`` and ``f = d(f)``."""
    if not numba:
        source = source.replace("@_compiled\n", "")
        source = source.replace("intrinsic(_one_bits)", "lambda word: int(word).bit_count()")
        # What is for Numba alone is not called then.
        source = re.sub(
            r"(def (?:_one_bits|_compiled)\(.*:)\n", r"\1  # pragma: no mutate block\n", source
        )
    return cst.parse_module(source).visit(_Undecorate()).code


class _Undecorate(cst.CSTTransformer):
    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        code = [cst.Module([]).code_for_node(d.decorator) for d in updated_node.decorators]
        # mutmut knows the first two; a setter needs the property; Numba must see the loops.
        plain = code in (["staticmethod"], ["classmethod"]) or "_compiled" in code
        if not code or plain or any(name.endswith(".setter") for name in code):
            return updated_node
        name = updated_node.name.value
        for decorator in reversed(code):
            name = f"{decorator}({name})"
        after = cst.parse_statement(f"{updated_node.name.value} = {name}")
        return cst.FlattenSentinel([updated_node.with_changes(decorators=[]), after])
