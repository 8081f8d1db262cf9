"""The Python API works from a wheel in a fresh environment, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIVE_LINES = """
import fedul_flwr as ff
from sklearn.datasets import load_digits
x, y = load_digits(return_X_y=True)
result = ff.simulate("fedul", data=(x.reshape(-1, 8, 8) / 16, y), clients=5, rounds=3)
print(result.summary["test_error"], result.plot(), ff.__version__)
"""
ESTIMATOR = """
import numpy as np
import fedul_flwr as ff
rng = np.random.default_rng(0)
ill, sound = rng.normal(1, 1, (300, 5)), rng.normal(-1, 1, (300, 5))
sets = [np.r_[ill[:240], sound[:60]], np.r_[ill[240:], sound[60:]]]
model = ff.FedULClassifier(rounds=5).fit(sets, [[0.8, 0.2], [0.2, 0.8]])
assert (model.predict(ill) == 0).mean() > 0.9
"""


@pytest.mark.slow
def test_given_a_wheel_in_a_fresh_environment_then_the_examples_run(tmp_path: Path) -> None:
    """Other packages come from the environment of the tests, so that nothing is fetched."""
    uv = pytest.importorskip("uv", reason="builds and installs the wheel").find_uv_bin()

    def run(*command: Any, cwd: Path = tmp_path) -> str:
        ours = ("PYTHONPATH", "VIRTUAL_ENV")
        environment = {key: value for key, value in os.environ.items() if key not in ours}
        done = subprocess.run(
            [*map(str, command)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path / "wheels", ROOT)
    [wheel] = (tmp_path / "wheels").glob("*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
    # The other packages, but not their editable install of ours.
    site = run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
    others = run(sys.executable, "-c", "import site; print(site.getsitepackages()[0])").strip()
    (Path(site) / "others.pth").write_text(f"{others}\n")
    where = run(python, "-c", "import fedul_flwr; print(fedul_flwr.__file__)")
    assert where.startswith(site)
    assert "test error" in run(python, "-c", FIVE_LINES)
    run(python, "-c", ESTIMATOR)
