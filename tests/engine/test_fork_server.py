"""Processes that are started import nothing from the working folder that no setting names."""

import subprocess
import sys
from pathlib import Path

import pytest

SHADOWS = (
    *("secrets", "random", "queue", "signal", "threading", "socket", "selectors", "pickle"),
    *("numpy", "torch", "flwr", "run", "sitecustomize", "optuna", "mlflow", "numba", "onnx"),
)


FEW = ("-c", "num-rounds=1 model=linear", "--num-supernodes", "2")


@pytest.mark.parametrize(
    "command",
    [
        ("run", *FEW, "--output", "first"),
        pytest.param(
            ("compare", "--methods", "fedul", "--seeds", "0", *FEW), marks=pytest.mark.slow
        ),
        pytest.param(("label", "--num-supernodes", "3"), marks=pytest.mark.slow),
        pytest.param(
            ("run", *FEW, "--engine", "ray", "--output", "first"),
            marks=[pytest.mark.ray, pytest.mark.slow],
        ),
    ],
    ids=["run", "compare", "label", "ray"],
)
def test_given_names_of_modules_then_no_file_runs(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / "my folder, ä"
    folder.mkdir()
    for name in SHADOWS:  # each writes a marker
        mark = f"open({str(folder / 'marker')!r}, 'a').write('{name} ')"
        (folder / f"{name}.py").write_text(f"{mark}\nraise ImportError('{name}')\n", "utf-8")
    words = [Path(sys.executable).with_name("fedul-flwr"), *command]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert not (folder / "marker").exists()
