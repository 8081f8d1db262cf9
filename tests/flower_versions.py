"""A short set of tests with other versions of Flower than the installed one.

These are the newest of the package index and the oldest that ``pyproject.toml`` allows. Only
Flower, and what it asks for beyond the present environment, is installed into a virtual environment
on top of the present one. ``make flower-versions`` runs it; arguments are passed on to pytest.
"""

import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-flower"
UV = Path(sys.executable).with_name("uv")  # Flower itself depends on it
TESTS = (
    "tests/test_house.py",  # what we import is public there, too
    *("tests/federated/test_grids.py", "tests/federated/test_packing.py"),
    *("tests/federated/test_rounds_by_hand.py", "tests/federated/test_private_mean.py"),
    "tests/federated/test_packed_runs.py",  # a run in process of FedUL, of FedMatch and of XCLP
    "tests/strategies/test_own_bases.py",
    *("tests/deploy/test_scripts.py", "tests/deploy/test_init.py"),
    "tests/engine/test_flower_run.py",
    "tests/engine/test_flower_simulation.py"
    "::test_given_no_processor_for_a_client_then_flowers_reason_and_nothing_of_the_users_is_touched",
    "tests/end_to_end/test_ray.py::test_a_run_leaves_what_it_promises",
    "tests/end_to_end/test_deployed.py"
    "::test_nothing_but_the_model_leaves_an_owner_though_the_superlink_dies",
)
UNMET = """\
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
for text in requires("flwr"):
    need = Requirement(text)
    if need.marker is None or need.marker.evaluate({"extra": "simulation"}):
        try:
            found = version(need.name)
        except PackageNotFoundError:
            found = ""
        if not found or not need.specifier.contains(found, prereleases=True):
            print(f"{need.name}{'[' + ','.join(need.extras) + ']' if need.extras else ''}"
                  f"{need.specifier}")
"""
"""Program that prints which requirements of Flower are not met."""


def main() -> int:
    """Exit code of the tests; 0 if there is nothing to test."""
    installed, newest = version("flwr"), newest_version()
    if newest is None:
        print("flower-versions: skipped, as the package index does not answer.")
        return 0
    others = [w for w in (f"=={oldest()}.*", f"=={newest}") if installed not in SpecifierSet(w)]
    if not others:
        print(f"flower-versions: skipped, as Flower {installed} is the only one to be tested.")
    return max((run_with(other) for other in others), default=0)


def run_with(wanted: str) -> int:
    """Exit code of the tests with the Flower of that version specifier."""
    print(f"flower-versions: a short set of tests with Flower{wanted}", flush=True)
    if not install(wanted):
        print(f"flower-versions: Flower{wanted} cannot be installed.")
        return 1
    command = [
        ENVIRONMENT / "bin" / "python",
        "-m",
        "pytest",
        "-W",
        "default",
        *sys.argv[1:],
        *TESTS,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def oldest() -> str:
    """The oldest release that ``pyproject.toml`` allows, such as 1.42."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [needed] = [r for r in map(Requirement, project["dependencies"]) if r.name == "flwr"]
    [lowest] = [bound.version for bound in needed.specifier if bound.operator == ">="]
    return lowest


def newest_version() -> str | None:
    """The newest release in the index; None without an answer."""
    options = ["--quiet", "--no-deps", "--no-header", "--no-annotate", "--upgrade", "-"]
    done = subprocess.run(
        [UV, "pip", "compile", *options],
        input="flwr",
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.anchor,
    )
    name, _, number = done.stdout.strip().partition("==")
    return number if done.returncode == 0 and name == "flwr" else None


def install(wanted: str) -> bool:
    """Make the virtual environment; False if Flower itself cannot be had."""
    made = [UV, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT]
    subprocess.run(made, check=True)
    [site] = ENVIRONMENT.glob("lib/python*/site-packages")
    # Searched after the environment's own packages.
    (site / "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if not add("--no-deps", f"flwr{wanted}", "--editable", str(ROOT)):
        return False
    asked = [ENVIRONMENT / "bin" / "python", "-c", UNMET]
    needs = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    for need in needs:
        if not add(need):
            print(f"flower-versions: this Flower asks for {need}, which cannot be installed.")
    return True


def add(*packages: str) -> bool:
    """Install into the virtual environment; whether that was possible."""
    python = ENVIRONMENT / "bin" / "python"
    command = [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *packages]
    return subprocess.run(command, cwd=ROOT.anchor, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
