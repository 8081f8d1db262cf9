"""Processes that are started import nothing from the working folder that no setting names."""

import subprocess
import sys
from pathlib import Path

import pytest

SHADOWS = (
    *("secrets", "random", "queue", "signal", "threading", "socket", "selectors", "pickle"),
    *("numpy", "torch", "flwr", "run", "sitecustomize", "optuna", "mlflow", "numba", "onnx"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files with the names of modules, each of which writes a marker."""
    place = tmp_path / "my folder, ä"
    place.mkdir()
    for name in SHADOWS:
        mark = f"open({str(place / 'marker')!r}, 'a').write('{name} ')"
        (place / f"{name}.py").write_text(f"{mark}\nraise ImportError('{name}')\n", "utf-8")
    return place


FEW = ("-c", "num-rounds=1 model=linear", "--num-supernodes", "2")


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "--methods", "fedul", "--seeds", "0", *FEW),
        pytest.param(("run", *FEW, "--output", "first"), marks=pytest.mark.slow),
        pytest.param(("label", "--num-supernodes", "3"), marks=pytest.mark.slow),
        pytest.param(
            ("run", *FEW, "--engine", "ray", "--output", "first"),
            marks=[pytest.mark.ray, pytest.mark.slow],
        ),
    ],
    ids=["compare", "run", "label", "ray"],
)
def test_given_files_named_as_modules_then_none_run(folder: Path, command: tuple[str, ...]) -> None:
    words = [Path(sys.executable).with_name("fedul-flwr"), *command]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert not (folder / "marker").exists()
