"""One namespace for methods: in a checkout, in a wheel and in a Flower app bundle."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from fedul_flwr.config.methods import METHODS
from fedul_flwr.engine.flower_run import METHODS as FOLDERS
from fedul_flwr.engine.flower_run import app_directory, copy_app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REFERENCES = sorted(
    {
        f"{kind.__module__}:{kind.__qualname__}"
        for m in METHODS.values()
        for kind in (m.strategy_class, m.client_class)
    }
)
PROGRAM = """
import json, sys
from pathlib import Path
from fedul_flwr.config.base import load_reference
found = [load_reference(name, "method") for name in json.loads(sys.argv[1])]
files = {str(Path(sys.modules[kind.__module__].__file__).resolve()) for kind in found}
import strategies
print(json.dumps([sorted(files), strategies.OWN]))
"""


def files_of_methods(package: Path, cwd: Path) -> set[Path]:
    """Files of all methods' classes, as a program imports them that lies in ``cwd``.

    Parameters
    ----------
    package : folder to import from.
    cwd : folder in which somebody has folders of his own named like ours.
    """
    for folder in FOLDERS:
        own = cwd / folder
        own.mkdir()
        (own / "__init__.py").write_text("OWN = True\n")
        (own / "fedul.py").write_text("raise RuntimeError('somebody else's module')\n")
    (cwd / "main.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "main.py", json.dumps(REFERENCES)],
        cwd=cwd,
        env={"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files, own_is_found = json.loads(done.stdout)
    assert own_is_found
    return {Path(file) for file in files}


def folders(files: set[Path], root: Path) -> set[str]:
    """Folders of ``files`` that have methods, below ``root``."""
    return {file.parent.relative_to(root).as_posix() for file in files}


def test_given_an_app_bundle_beside_ones_own_folders_then_it_has_ours(tmp_path: Path) -> None:
    app, bundle, own = (tmp_path / name for name in ("fedul-flwr", "bundle", "own"))
    copy_app(app_directory(), app)
    (tmp_path / "app.fab").write_bytes(build_fab_from_disk(app))
    with zipfile.ZipFile(tmp_path / "app.fab") as archive:
        archive.extractall(bundle)
    own.mkdir()
    assert folders(files_of_methods(bundle, own), bundle) == {*FOLDERS, "fedul_flwr/federated"}


def test_given_a_wheel_then_the_methods_are_inside_the_package_alone(tmp_path: Path) -> None:
    uv = pytest.importorskip("uv", reason="builds the wheel")
    command = [uv.find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip("the build backend is not at hand, and cannot be fetched")
    assert done.returncode == 0, done.stderr
    site, own = tmp_path / "site", tmp_path / "own"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        archive.extractall(site)
    own.mkdir()
    inside = {"fedul_flwr/federated", *(f"fedul_flwr/{folder}" for folder in FOLDERS)}
    assert folders(files_of_methods(site, own), site) == inside
    tops = {path.name for path in site.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"fedul_flwr"}
    # Its app has the same files as a checkout's.
    copying = (
        "import sys; from pathlib import Path; from fedul_flwr.engine import flower_run as a; "
    )
    copying += "a.copy_app(a.app_directory(), Path(sys.argv[1]))"
    command = [sys.executable, "-c", copying, str(tmp_path / "app")]
    subprocess.run(command, cwd=own, env={"PYTHONPATH": str(site)}, check=True)
    copy_app(ROOT, tmp_path / "same")
    assert files(tmp_path / "app") == files(tmp_path / "same") - {".gitignore"}


def files(folder: Path) -> set[str]:
    """Paths of all files in ``folder``."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.is_file()}
