"""Every benchmark runs, in the few repetitions of ``--quick``, and says what it should."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import inputs
from benchmarks.__main__ import NAMES
from benchmarks.flower_runs import Rounds, Watch
from fedul_flwr.config.run_config import resolve
from tests.support.runs import metrics_and_times, train

SLOW = {
    "deployed_round",
    "engines",
    "fedul_round",
    "gpu",
    "local_step",
    "many_clients",
    "matching_step",
    "method_cost",
    "owners_differ",
    "propagation",
    "round_memory",
    "scale",
    "secure",
    "secure_sum",
    "small_clients",
    "time_to_error",
}
"""Benchmarks of which the few repetitions take five seconds or more."""
IN_PROCESS = {"fedul_round", "small_clients"}
"""Benchmarks whose runs do without Ray here: ``many_clients`` runs the same app on it."""
CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]


def run_in_process(overrides: dict[str, Any], output: Path, num_supernodes: int) -> Rounds:
    """Stands for ``run_ours``; nobody watches from outside."""
    settings = resolve({**overrides, "output": str(output)}, Path.cwd())
    nothing_seen = SimpleNamespace(peaks={}, memory=0.0)
    return Rounds(metrics_and_times(train(settings, num_supernodes)), cast(Watch, nothing_seen))


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inputs, "MADE", tmp_path / "made")
    module = importlib.import_module(f"benchmarks.{name}")
    if name in IN_PROCESS:
        monkeypatch.setattr(module, "run_ours", run_in_process)
    outcome = module.measure(quick=True)
    assert outcome.rows
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert outcome.bars or outcome.notes
    found = json.loads(json.dumps(outcome.as_json()))
    assert found["title"].startswith(name)
    assert set(found) > {"title", "bars", "notes"}  # figures too
    assert all(path.stat().st_size > 5000 for path in outcome.draw(tmp_path))
    outcome.show()
    assert outcome.title in capsys.readouterr().out
