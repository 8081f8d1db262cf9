"""The real thing: our command line, Flower's SuperLink, Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import resolve
from tests.support.patience import wait_for_end
from tests.support.runs import assert_same_run, summary, train

pytestmark = pytest.mark.ray
QUICK = "model='mlp' num-rounds=2 local-epochs=1"
ALL_CPUS = str(os.cpu_count() or 1)
"""CPUs a client takes for there to be one Ray worker: each takes seconds to start."""


def fedul(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does; its output is not a terminal."""
    command = [str(Path(sys.executable).with_name("fedul-flwr")), *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=errors, env=environment)
        try:
            wait_for_end(process, progress=lambda: os.fstat(out.fileno()).st_size)
        finally:
            process.kill()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(process.args, process.returncode, *texts)


def text(settings: dict[str, Any]) -> str:
    """Settings as ``-c`` takes them."""
    return " ".join(
        f"{key}={repr(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in settings.items()
    )


def in_process(place: Path, num_rounds: int, **more: Any) -> Path:
    """Directory of the run of 10 clients that takes so many rounds."""
    settings = {"model": "mlp", "num-rounds": num_rounds, "local-epochs": 1, **more}
    return train(resolve({**settings, "output": str(place / f"here-{num_rounds}")}, place), 10)


def test_a_run_leaves_what_it_promises(tmp_path: Path) -> None:
    """Files, a summary, a report, and the numbers of the in-process grid.

    The server, too, trains.
    """
    finetuned = {"method": "fedul-finetune", "server-fraction": 0.2}
    given = ("-c", f"{QUICK} {text(finetuned)}", "--output", "result")
    done = fedul("run", "--engine", "ray", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    directory = tmp_path / "result"
    files = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert files >= {
        *("config.json", "environment.json", "metrics.jsonl", "summary.json", "federation.json"),
        *("model.safetensors", "last.safetensors", "plots/summary.png"),
    }
    found = summary(directory)
    assert found["status"] == "completed"
    assert found["num_clients"] == 10
    assert found["rounds"] == 2
    assert found["bytes_up"] > 2 * 10 * 4 * 25_000  # the model has over 25,000 weights
    for promised in (str(directory / "model.safetensors"), f"{found['test_error']:.2f} %"):
        assert promised in done.stdout
    assert_same_run(directory, in_process(tmp_path, 2, **finetuned))
    reported = CliRunner().invoke(app, ["report", str(directory)])
    assert reported.exit_code == 0, reported.output
    assert (directory / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_run_on_ray_resumes(tmp_path: Path) -> None:
    """Two rounds in process and one more on Ray equal three; the longer plan is kept.

    Clients keep control variates from round to round.
    """
    variates = {"base": "scaffold", "scaffold.option": "I"}
    directory = in_process(tmp_path, 2, **variates)
    more = ("--resume", str(directory), "-c", "num-rounds=3", "--client-cpus", ALL_CPUS)
    done = fedul("run", "--engine", "ray", *more, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((directory / "config.json").read_text())["settings"]["num-rounds"] == 3
    assert_same_run(directory, in_process(tmp_path, 3, **variates))
