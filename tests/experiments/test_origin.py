"""What stored results say of where they come from."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fedul_flwr.data.run_files import store
from fedul_flwr.experiments.runs_file import require_committed
from tests.support.refusals import refuses

RESULTS = Path(__file__).parents[2] / "results"
OLDER = {
    "bi-objective/table-1": 14,
    "fedul/figure-3": 10,
    "fedul/table-1": 43,
    "fedul/table-e11": 9,
    "fedul/table-e12": 8,
    "fedul/table-e13": 12,
    "recipes/covid-fedmatch": 55,
    "recipes/covid-fedul": 1,
    "recipes/xclp-cifar10": 2,
    "reference/clients": 110,
    "reference/server": 135,
    "reference/sets": 213,
    "xclp/table-4": 9,
}
"""Runs of changed code that were stored before this was refused; the page says so, too."""


def test_stored_runs_are_of_committed_code() -> None:
    changed: Counter[str] = Counter()
    for file in RESULTS.rglob("*.jsonl"):
        if not file.name.endswith(".search.jsonl"):
            name = file.relative_to(RESULTS).with_suffix("").as_posix()
            runs = map(json.loads, file.read_text().splitlines())
            changed[name] += sum((run["commit"] or "").endswith(store.DIRTY) for run in runs)
    assert {name: count for name, count in changed.items() if count} == OLDER


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A commit of a package with a linked folder, taken for the running source."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    (tmp_path / "baselines").mkdir()
    (tmp_path / "fedul_flwr").mkdir()
    (tmp_path / "fedul_flwr" / "baselines").symlink_to("../baselines")
    (tmp_path / "baselines" / "method.py").write_text("A = 1\n")
    (tmp_path / "README.md").write_text("Text.\n")
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Begin"]):
        subprocess.run([git, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(store, "SOURCE", tmp_path)
    store._describe_commit.cache_clear()
    return tmp_path


def test_changed_text_is_no_changed_code(checkout: Path) -> None:
    (checkout / "README.md").write_text("Another text.\n")
    (checkout / "notes.py").write_text("B = 1\n")
    commit = store.git_commit()
    assert commit is not None
    assert len(commit) == 40


@pytest.mark.parametrize("file", ["baselines/method.py", "baselines/new.py", "fedul_flwr/new.py"])
def test_changed_code_is_marked(checkout: Path, file: str) -> None:
    (checkout / file).write_text("A = 2\n")
    assert (store.git_commit() or "").endswith(store.DIRTY)


def test_results_of_changed_code_go_elsewhere(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr("fedul_flwr.experiments.runs_file.SOURCE", checkout)
    require_committed(checkout / "results")
    (checkout / "fedul_flwr" / "new.py").write_text("A = 2\n")
    store._describe_commit.cache_clear()
    with refuses("code-not-committed"):
        require_committed(checkout / "results")
    require_committed(tmp_path_factory.mktemp("results"))
