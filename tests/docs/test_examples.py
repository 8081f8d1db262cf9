"""Examples in docstrings work as shown."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("fedul_flwr", "strategies", "client_apps", "baselines")
PROMPT = ">>> "


def lines_of_examples(file: Path) -> int:
    return sum(line.lstrip().startswith(PROMPT) for line in file.read_text().splitlines())


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    inside = parts if parts[0] == "fedul_flwr" else ("fedul_flwr", *parts)
    return ".".join(inside).removesuffix(".__init__")


WITH_EXAMPLES = {
    module_of(file): file
    for folder in FOLDERS
    for file in sorted((ROOT / folder).rglob("*.py"))
    if lines_of_examples(file)
}
"""Files with examples by the names of their modules."""


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tests = doctest.DocTestFinder().find(importlib.import_module(module))
    assert sum(len(test.examples) for test in tests) == lines_of_examples(WITH_EXAMPLES[module])
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0, "what is printed says which"
    assert [*tmp_path.iterdir()] == []
