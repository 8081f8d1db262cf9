"""Our commands and Python work from a wheel in a fresh environment, outside a clone."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SMALL = "model=mlp points-per-client=60"
ROWS = 'dataset="breast-cancer" model="linear" fedul.num-sets=2 num-rounds=1'
RECIPE = "recipes/tables --quick --columns 'breast cancer' --rows FedUL"
COMMANDS = f"""
methods fedul
settings num-rounds
datasets
run -c '{SMALL} num-rounds=1' --num-supernodes 3 --output runs/digits --engine in-process
run -c 'num-rounds=2' --resume runs/digits --num-supernodes 3 --engine in-process
run -c '{ROWS}' --output runs/rows --engine in-process
label -c points-per-client=60 --output runs/labels --num-supernodes 3 --engine in-process
predict --model runs/digits --input images
export runs/digits
compare --methods fedul,supervised --seeds 0 -c '{SMALL} num-rounds=1' --output runs/two
report runs/rows
reproduce --list
reproduce fedul/table-1 --quick --print 'MNIST Non-IID M=10'
reproduce {RECIPE} --engine in-process
tune {RECIPE} --trials 2
reproduce {RECIPE} --engine in-process --tuned --seeds 1
deploy init consortium --address localhost:8000 --owners 3
"""
LEFT = [
    *("runs/digits/model.safetensors", "runs/digits/plots/summary.png", "runs/digits/model.onnx"),
    *("runs/rows/summary.json", "runs/rows/report.html", "runs/labels/labels.json"),
    *("images-predictions.csv", "runs/two/comparison.md"),
    *("results/recipes/tables.jsonl", "results/recipes/tables.search.jsonl"),
    "consortium/server/start-superlink.sh",
]
DRIVER = """
import shlex
import sys
from pathlib import Path

import numpy as np
from PIL import Image

Path("images").mkdir()
Image.fromarray(np.zeros((8, 8), np.uint8)).save("images/black.png")


def main():
    from fedul_flwr.cli.main import app

    for line in sys.argv[1].strip().splitlines():
        try:
            app(shlex.split(line))
        except SystemExit as end:
            assert not end.code, line
    ours = [module for name, module in sys.modules.items() if name.startswith("fedul_flwr")]
    assert all(module.__file__.startswith(sys.prefix) for module in ours), ours


if __name__ == "__main__":
    main()
"""
PYTHON = """
import fedul_flwr as ff
from sklearn.datasets import load_digits
x, y = load_digits(return_X_y=True)
result = ff.simulate("fedul", data=(x.reshape(-1, 8, 8) / 16, y), clients=5, rounds=1)
print(result.summary["test_error"], result.plot(), ff.__version__)

import numpy as np
rng = np.random.default_rng(0)
ill, sound = rng.normal(1, 1, (300, 5)), rng.normal(-1, 1, (300, 5))
sets = [np.r_[ill[:240], sound[:60]], np.r_[ill[240:], sound[60:]]]
model = ff.FedULClassifier(rounds=5).fit(sets, [[0.8, 0.2], [0.2, 0.8]])
assert (model.predict(ill) == 0).mean() > 0.9

from flwr.app import Context, RecordDict
from fedul_flwr.engine.in_process import InProcessGrid
from fedul_flwr.engine.in_process import task_identity
import my_app
with task_identity():
    grid = InProcessGrid(my_app.client_app, 3, {})
    found = my_app.main(grid, Context(0, 0, {}, RecordDict(), {}))
assert float(found.evaluate_metrics_serverapp[10]["error"]) < 0.1
"""


@dataclass
class Fresh:
    """Runs programs of an environment; ``work`` is the folder in which they run."""

    run: Callable[..., str]
    programs: Path
    work: Path

    def __call__(self, name: str, *arguments: str) -> str:
        return self.run(self.programs / name, *arguments)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """Runs programs of a fresh environment with the wheel, in a folder outside the clone.

    Other packages come from the environment of the tests, so that nothing is fetched.
    """
    uv = pytest.importorskip("uv", reason="builds and installs the wheel").find_uv_bin()
    place = tmp_path_factory.mktemp("wheel")
    work = place / "work"
    work.mkdir()

    def run(*command: Any) -> str:
        ours = ("PYTHONPATH", "VIRTUAL_ENV")
        environment = {key: value for key, value in os.environ.items() if key not in ours}
        done = subprocess.run(
            [*map(str, command)],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(uv, "build", "--quiet", "--wheel", "--out-dir", place / "wheels", ROOT)
    [wheel] = (place / "wheels").glob("*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, place / "fresh")
    python = place / "fresh" / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
    # The other packages, but not their editable install of ours.
    [site] = (place / "fresh" / "lib").glob("python*/site-packages")
    others = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "others.pth").write_text(f"{others}\n")

    return Fresh(run, python.parent, work)


def test_given_a_wheel_then_commands_run(fresh: Fresh) -> None:
    (fresh.work / "driver.py").write_text(DRIVER)
    said = fresh("python", "driver.py", COMMANDS)
    missing = [name for name in LEFT if not (fresh.work / name).exists()]
    assert not missing, said


def test_given_a_wheel_then_python_runs(fresh: Fresh) -> None:
    page = (ROOT / "docs" / "own-app.md").read_text()
    (fresh.work / "my_app.py").write_text(re.findall(r"```python\n(.*?)```", page, re.S)[0])
    assert "test error" in fresh("python", "-c", PYTHON)


def test_given_a_wheel_then_the_demo_finishes(fresh: Fresh) -> None:
    assert "test error" in fresh("fedul-flwr", "demo")
