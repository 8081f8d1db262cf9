"""A short set of tests with the oldest version of every dependency that ``pyproject.toml`` allows.

These versions, and the newest of what they ask for themselves, are installed into an environment of
their own (about 6 GB, mostly PyTorch). ``make lowest-versions`` runs it; arguments are passed on to
pytest.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-lowest"
UV = Path(sys.executable).with_name("uv")  # Flower itself depends on it
EXTRAS = ("hub", "paper-protocols", "prometheus", "torchvision", "xclp")
"""Of which the tests need packages."""
TESTED_WITH = ("pytest", "pytest-xdist", "hypothesis")
TESTS = (
    "tests/test_client_imports.py",
    *("tests/cli/test_lists.py", "tests/cli/test_help.py", "tests/cli/test_main.py"),
    *("tests/config/test_run_config.py", "tests/data/test_sources.py", "tests/data/test_tables.py"),
    "tests/federated/test_packed_runs.py",  # a run in process of FedUL, of FedMatch and of XCLP
    *("tests/models/test_models.py", "tests/learning/test_local.py"),
    "tests/api/test_estimators.py",
    *("tests/propagation/test_solve.py", "tests/secure/test_channels.py"),
    *("tests/results/test_report.py", "tests/results/test_plots.py"),
    *("tests/deploy/test_certificates.py", "tests/deploy/test_scripts.py"),
)


def main() -> int:
    """Exit code of the tests; 0 if the package index does not answer."""
    found = oldest()
    if found is None:
        print("lowest-versions: skipped, as the package index does not answer.")
        return 0
    print("lowest-versions: a short set of tests with the oldest versions allowed", flush=True)
    if not install(found):
        print("lowest-versions: these versions cannot be installed.")
        return 1
    command = [ENVIRONMENT / "bin" / "python", "-m", "pytest", "-W", "default", "-m", "not slow"]
    command += sys.argv[1:]
    return subprocess.run([*command, *TESTS], cwd=ROOT, check=False).returncode


def oldest() -> str | None:
    """Requirements as ``name==version`` lines; None without an answer of the index."""
    options = ["--quiet", "--resolution", "lowest-direct", "--no-header", "--no-annotate"]
    options += [word for extra in EXTRAS for word in ("--extra", extra)]
    command = [UV, "pip", "compile", *options, "--python", sys.executable, "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip())
    return done.stdout if done.returncode == 0 else None


def install(requirements: str) -> bool:
    """Make the environment; whether everything could be installed."""
    made = [UV, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT]
    subprocess.run(made, check=True)
    into = [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python"]
    into.append(ENVIRONMENT / "bin" / "python")
    done = subprocess.run(
        [*into, "--requirements", "-", *TESTED_WITH], input=requirements, text=True, check=False
    )
    if done.returncode:
        return False
    own = [*into, "--no-deps", "--editable", str(ROOT)]
    return subprocess.run(own, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
