"""``fedul-flwr run --federation`` on a real SuperLink: exit code, reason, results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedul_flwr.deploy.init import CONNECTION
from tests.end_to_end.test_ray import text
from tests.support.deployment import Deployment
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.runs import metrics, summary

pytestmark = pytest.mark.slow

SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1, "selection": "last"},
    "num-rounds": 1,
}


def run(deployment: Deployment, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedul_flwr.cli", "run", "--federation", CONNECTION, *options],
        cwd=deployment.place,
        env=deployment.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_given_owners_then_the_command_shows_rounds_and_summary_and_its_exit_code_is_true(
    deployment: Deployment, tmp_path: Path
) -> None:
    for client in range(3):
        write_sets(tmp_path / f"ward-{client}", seed=client)
        deployment.start_node(client, tmp_path / f"ward-{client}")
        deployment.node_id(client)
    good = run(deployment, "-c", text(SETTINGS), "--output", str(tmp_path / "good"))
    assert good.returncode == 0, good.stderr
    assert "round 1/1: surrogate loss" in good.stdout
    assert f"{tmp_path / 'good' / 'model.safetensors'}" in good.stdout
    assert summary(tmp_path / "good")["num_clients"] == 3
    assert len(metrics(tmp_path / "good")) == 1
    # More classes than sets: owners refuse, and plain `flwr run` would exit with 0.
    wrong = {**SETTINGS, "class-names": "a,b,c,d,e,f,g,h,i,j"}
    bad = run(deployment, "-c", text(wrong), "--output", str(tmp_path / "bad"))
    assert bad.returncode == 1
    assert bad.stderr.startswith("Error: ")
    assert f"The log of the run is {tmp_path / 'bad' / 'flower.log'}." in bad.stderr
