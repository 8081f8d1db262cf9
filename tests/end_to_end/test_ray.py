"""The real thing: our command line, Flower's SuperLink, Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.sources import load_source
from fedul_flwr.experiments.trial_plan import make_plan, read_runs
from tests.runs import last_model, metrics, summary, train
from tests.support.patience import quiet_seconds

pytestmark = pytest.mark.ray
QUICK = "model='mlp' num-rounds=2 local-epochs=1"
ALL_CPUS = str(os.cpu_count() or 1)
"""CPUs a client takes for there to be one Ray worker: each takes seconds to start."""


def fedul(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does; its output is not a terminal."""
    command = Path(sys.executable).with_name("fedul-flwr")
    with subprocess.Popen(
        [str(command), *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    ) as process:
        for _ in quiet_seconds(240):
            try:
                out, errors = process.communicate(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            return subprocess.CompletedProcess(process.args, process.returncode, out, errors)
        process.kill()
    raise AssertionError(f"{arguments} did not end")


def in_process(place: Path, num_rounds: int) -> Path:
    """Directory of the run of 10 clients that takes so many rounds."""
    settings = {"model": "mlp", "num-rounds": num_rounds, "local-epochs": 1}
    return train(resolve({**settings, "output": str(place / f"here-{num_rounds}")}, place), 10)


def assert_same_numbers(one: Path, other: Path) -> None:
    """Figures of all rounds, and the last model bit by bit."""
    assert metrics(one) == metrics(other)
    for name, array in last_model(one).items():
        np.testing.assert_array_equal(array, last_model(other)[name])


def test_a_run_leaves_what_it_promises(tmp_path: Path) -> None:
    """Files, a summary, a report, and the numbers of the in-process grid."""
    done = fedul("run", "-c", QUICK, "--output", "result", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    directory = tmp_path / "result"
    files = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert files >= {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "summary.json",
        "federation.json",
        "model.safetensors",
        "last.safetensors",
        "plots/error.png",
    }
    found = summary(directory)
    assert found["status"] == "completed"
    assert found["num_clients"] == 10
    assert found["rounds"] == 2
    assert found["bytes_up"] > 2 * 10 * 4 * 25_000  # the model has over 25,000 weights
    for promised in (str(directory / "model.safetensors"), f"{found['test_error']:.2f} %"):
        assert promised in done.stdout
    assert_same_numbers(directory, in_process(tmp_path, 2))
    done = fedul("report", str(directory), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (directory / "report.html").stat().st_size > 10_000


def test_a_run_on_ray_resumes_and_its_model_predicts(tmp_path: Path) -> None:
    """Two rounds in process and one more on Ray equal three; the longer plan is kept."""
    directory = in_process(tmp_path, 2)
    more = ("--resume", str(directory), "-c", "num-rounds=3", "--client-cpus", ALL_CPUS)
    done = fedul("run", *more, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((directory / "config.json").read_text())["settings"]["num-rounds"] == 3
    assert_same_numbers(directory, in_process(tmp_path, 3))

    source = load_source("digits")
    (tmp_path / "images").mkdir()
    for index in range(5):
        pixels = np.asarray(source.test.images[index])[..., 0]
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    done = fedul("predict", "--model", str(directory), "--input", "images", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "images-predictions.csv").read_text().splitlines()
    assert len(lines) == 6


RUNS = """
["five sets"]
fedul.num-sets = 5
["variates at clients"]
base = "scaffold"
scaffold.option = "I"
["fine-tuned at the server"]
method = "fedul-finetune"
"""


def test_a_comparison_on_ray(tmp_path: Path) -> None:
    """A failing run costs no other; all others have the numbers of the in-process grid."""
    (tmp_path / "runs.toml").write_text(RUNS)
    shared = f"{QUICK} server-fraction=0.2"
    arguments = ("--runs", "runs.toml", "--seeds", "0", "-c", shared, "--output", "out")
    done = fedul("compare", *arguments, "--client-cpus", ALL_CPUS, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Warning: The runs do not share their data splits, fedul.num-sets differs" in done.stderr
    refused = 'Client 0 cannot take part: it says "it has 5 sets, fewer than the 10 classes".'
    assert f"Failed: five sets, seed 0: {refused}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.count("Starting Flower's simulation") == 1
    plan = make_plan(
        read_runs(tmp_path / "runs.toml"), parse_overrides([shared]), (0,), 10, tmp_path / "here"
    )
    failed, *others = plan.trials
    where = failed.directory.relative_to(plan.output)
    assert not (tmp_path / "out" / where / "summary.json").exists()
    for trial in others:
        there = tmp_path / "out" / trial.directory.relative_to(plan.output)
        assert metrics(train(trial.config, 10)) == metrics(there), trial.row
