"""Two walks from the beginning to the end, as their people take them, with real programs.

A hospital goes from CSV files to what the federation's model predicts. A platform engineer runs an
app of their own, and a run among owners. Each walk is bounded, and leaves no process.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from fedul_flwr.data.columns import read_columns
from fedul_flwr.deploy.init import CONNECTION
from fedul_flwr.deploy.status import status
from fedul_flwr.engine.flower_simulation import MARK, PREFIX, end_marked
from tests.support.deployment import PROGRAMS, Deployment, free_ports, write_settings
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.patience import PATIENCE, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MINUTES = 10
"""A walk takes at most so long."""


def told(command: list[Any], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What a program says that ends with 0."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * MINUTES,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


# A hospital: three owners, from CSV to a prediction

SHARES = {"january": 0.85, "february": 0.15, "march": 0.5}
"""How many of a month's patients have a sepsis."""


def patients(seed: int, count: int, share: float) -> pd.DataFrame:
    """Patients as a hospital exports them, with their diagnoses."""
    rng = np.random.default_rng(seed)
    ill = np.arange(count) < round(share * count)
    return pd.DataFrame(
        {
            "patient": [f"{seed:03}-{number:04}" for number in range(count)],
            "age": np.where(
                np.arange(count) % 9 == 4, np.nan, rng.normal(np.where(ill, 72, 55), 8).round()
            ),
            "lactate": rng.normal(np.where(ill, 4.5, 1.2), 0.6).round(1),
            "sex": rng.choice(["f", "m"], count),
            "sepsis": np.where(ill, "yes", "no"),
        }
    )


def export_months(folder: Path, hospital: int) -> None:
    """What a data manager makes of an export: a CSV for each month, and their class shares."""
    folder.mkdir()
    rows = ["set,yes,no"]
    for number, (month, share) in enumerate(SHARES.items()):
        frame = patients(10 * hospital + number, 80, share)
        frame.drop(columns="sepsis").to_csv(folder / f"{month}.csv", index=False)
        known = (frame["sepsis"] == "yes").mean()
        rows.append(f"{month}.csv,{known:.2f},{1 - known:.2f}")
    (folder / "priors.csv").write_text("\n".join(rows) + "\n")


COLUMNS = {
    "columns": [
        {"name": "age"},
        {"name": "lactate"},
        {"name": "sex", "categories": ["f", "m"]},
    ]
}
"""What the hospitals have agreed on."""


def hospital_settings(place: Path) -> str:
    return (
        'method="fedul" dataset="none" class-names="yes,no" model="linear" num-rounds=2 '
        f'selection="last" columns="{place / "columns.json"}" missing="median" '
        'standardize-sum="masked" '
        "learning-rate=0.05 local-epochs=15 batch-size=20 seed=1"
    )


def test_given_csv_files_then_the_model_predicts(deployment: Deployment, tmp_path: Path) -> None:
    env = deployment.environment
    (tmp_path / "columns.json").write_text(json.dumps(COLUMNS))
    settings = hospital_settings(tmp_path)
    for owner in range(3):
        export_months(tmp_path / f"hospital-{owner}", owner)
        folder = deployment.owner(owner)
        values = {"DATA": tmp_path / f"hospital-{owner}", "VENV": PROGRAMS.parent}
        write_settings(folder / "node.env", values)
        said = told([folder / "check-data.sh", "-c", settings], tmp_path, env)
        assert said.endswith("Ready.\n")
        assert "columns used: age, lactate, sex" in said
        assert "columns left out: patient" in said
        deployment.start_node(owner, tmp_path / f"hospital-{owner}")
    for owner in range(3):
        deployment.node_id(owner)
    run = tmp_path / "ours"
    program = PROGRAMS / "fedul-flwr"
    command = [program, "run", "--federation", CONNECTION, "-c", settings, "--output", run]
    assert "Finished" in told(command, deployment.place, env) or (run / "summary.json").exists()
    ages = [
        pd.concat(
            pd.read_csv(f"{tmp_path}/hospital-{owner}/{month}.csv")["age"] for month in SHARES
        )
        for owner in range(3)
    ]
    (filled,) = [c for c in read_columns(run).columns if c.name == "age"]
    assert filled.fill == pytest.approx(np.mean([age.median() for age in ages]))

    # The model comes home: one file, and the hospital's own machine predicts new patients with it.
    home = deployment.owner(1)
    told([program, "pack", run, "-o", home / "model.zip"], tmp_path, env)
    assert str(tmp_path).encode() not in (home / "model.zip").read_bytes()
    new = patients(99, 60, 0.5)
    new.drop(columns="sepsis").to_csv(home / "new.csv", index=False)
    options = ["--input", "new.csv", "--id-column", "patient", "-o", "out.csv"]
    told([program, "predict", "--model", "model.zip", *options], home, env)
    out = pd.read_csv(home / "out.csv", dtype=str)
    assert list(out["patient"]) == list(new["patient"])
    assert (out["class"] == new["sepsis"]).mean() > 0.9

    # What a clinician asks, on this hospital's own outcomes.
    new.to_csv(home / "y.csv", index=False)
    options = ["--labels", "y.csv", "--label-column", "sepsis", "--by", "sex,age"]
    said = told([program, "evaluate", "--model", "model.zip", *options], home, env)
    assert "Class " in said
    assert "sex: f" in (home / "evaluation.html").read_text()

    told([program, "report", run], tmp_path, env)
    page = (run / "report.html").read_text()
    for text in ("owner-0", "owner-2", "What left each owner", "What is not protected"):
        assert text in page


# A platform engineer: an app of their own, a deployed run that is stopped


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def flower_of_ones_own(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a fresh user of Flower, whose local SuperLink is nobody else's."""
    home = tmp_path / f"{PREFIX}user"
    home.mkdir()
    http, control = free_ports(2)
    environment = {
        **{key: os.environ[key] for key in os.environ if not key.startswith("FLWR_")},
        **{
            MARK: str(home),
            "FLWR_HOME": str(home),
            "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        },
        **{"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http), "NO_PROXY": "127.0.0.1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "COLUMNS": "250"},
        **{"PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]), "OMP_NUM_THREADS": "1"},
    }
    yield environment
    end_marked(home)
    assert [one for one in psutil.process_iter() if belongs_to(one, home)] == []


def belongs_to(process: psutil.Process, home: Path) -> bool:
    try:
        return process.environ().get(MARK) == str(home) and process.pid != os.getpid()
    except psutil.Error:
        return False


def test_given_the_page_then_it_runs(flower_of_ones_own: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "my-app"
    place.mkdir()
    (place / "pyproject.toml").write_text(blocks("own-app.md", "toml")[0])
    (place / "my_app.py").write_text(blocks("own-app.md", "python")[0])
    [commands] = blocks("own-app.md", "bash")
    said = told(["bash", "-e", "-c", commands], place, flower_of_ones_own)
    assert "finished:completed" in said
    assert "ModuleNotFoundError" not in said


def test_a_deployed_run_is_watched_and_stopped(deployment: Deployment, tmp_path: Path) -> None:
    env = deployment.environment
    for owner in range(3):
        write_sets(tmp_path / f"ward-{owner}", seed=owner)
        deployment.start_node(owner, tmp_path / f"ward-{owner}")
        deployment.node_id(owner)
    states = {row.owner: row.state for row in status(deployment.files)}
    assert states == {f"owner-{number}": "online" for number in range(3)}
    settings = {**NO_DATA, "model": "mlp", "num-rounds": 500, "selection": "last"}
    words = [f'{key}="{v}"' if isinstance(v, str) else f"{key}={v}" for key, v in settings.items()]
    run = tmp_path / "long"
    with (tmp_path / "said.txt").open("wb") as said:
        program = subprocess.Popen(
            [
                *(PROGRAMS / "fedul-flwr", "run", "--federation", CONNECTION),
                *("-c", " ".join(words), "--output", str(run)),
            ],
            cwd=deployment.place,
            env=env,
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            metrics = run / "metrics.jsonl"
            wait_until(lambda: metrics.exists() and metrics.stat().st_size, PATIENCE, "a round")
            program.send_signal(2)  # Ctrl-C
            assert program.wait(60) == 130
        finally:
            program.kill()
    assert "goes on with it" in (tmp_path / "said.txt").read_text()
    flwr = [PROGRAMS / "flwr", "list", CONNECTION, "--format", "json"]
    runs = json.loads(told(flwr, deployment.place, env))["runs"]
    assert {found["status"] for found in runs} <= {"finished:completed", "finished:stopped"}
    assert "finished:stopped" in {found["status"] for found in runs}
