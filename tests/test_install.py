"""What is installed with the package, and what runs without the rest and outside Linux."""

import ast
import importlib
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.data.decode import decode_image
from fedul_flwr.data.sources import load_source
from fedul_flwr.errors import MissingPackageError
from fedul_flwr.experiments.studies import require_optuna
from fedul_flwr.extractors.find import find_extractor
from fedul_flwr.models.registry import build_model
from fedul_flwr.results.export import export
from fedul_flwr.run.tracking import refuse_missing
from fedul_flwr.secure import encrypted_distances
from tests.sentences import PACKAGES, ROOT, trees
from tests.support.refusals import refuses

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {Requirement(text).name for text in PROJECT["dependencies"]}
DEVELOPERS = {"dev", "docs", "bench", "crosscheck"}
EXTRAS = {
    extra: {Requirement(text).name for text in texts}
    for extra, texts in PROJECT["optional-dependencies"].items()
    if extra not in DEVELOPERS
}
WITH_FLOWER = {"click", "cryptography", "grpcio", "rich", "typer", "uvicorn"}
"""Of what Flower asks for, what we import."""
LOADED_ALREADY = {"ipython"}
"""Imported by code that only a notebook runs."""


DISTRIBUTIONS = {
    top: {n.lower().replace("_", "-") for n in names}
    for top, names in packages_distributions().items()
}


def imports(*, at_once: bool) -> dict[str, set[str]]:
    """Distributions of the modules that the packages import, each with the files that do.

    Parameters
    ----------
    at_once : only where a module is loaded, not in functions or for types alone.
    """
    found = defaultdict(set)
    for file, tree in trees().items():
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            is_later |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if not (at_once and is_later):
                todo += ast.iter_child_nodes(node)
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for top in {name.partition(".")[0] for name in names}:
                if top not in sys.stdlib_module_names and top not in PACKAGES:
                    [name] = DISTRIBUTIONS[top]
                    found[name].add(file)
    return found


def test_the_core_is_small() -> None:
    assert len(CORE) <= 14


def test_every_import_is_the_cores_or_an_extras() -> None:
    declared = CORE | WITH_FLOWER | LOADED_ALREADY | set().union(*EXTRAS.values())
    assert imports(at_once=False).keys() - declared == set()
    assert CORE - imports(at_once=False).keys() == set()


def test_flower_itself_asks_for_what_is_left_to_it() -> None:
    always = [need for need in map(Requirement, requires("flwr") or ()) if need.marker is None]
    assert {need.name for need in always} >= WITH_FLOWER


def test_extras_are_imported_where_they_are_used() -> None:
    later = set().union(*EXTRAS.values())
    files = {file for name, of in imports(at_once=True).items() if name in later for file in of}
    # Modules that functions load, and of which nothing works without the package.
    assert files == {
        "fedul_flwr/deploy/figures.py",
        "fedul_flwr/propagation/compiled.py",
        "fedul_flwr/secure/hamming/ot.py",
        "fedul_flwr/secure/hamming/paillier.py",
    }


def anew(module: str) -> None:
    sys.modules.pop(module, None)
    importlib.import_module(module)


def backend(name: str) -> None:
    encrypted_distances.BACKENDS.pop(name, None)
    encrypted_distances.backend_of(name)


def check(**settings: object) -> None:
    find_method(str(settings["method"])).check(parse_flat(settings))


DICOM = bytes(128) + b"DICM"
USES: list[tuple[str, str, Callable[[], object]]] = [
    ("xclp", "numba", lambda: check(method="xclp")),
    ("xclp", "numba", lambda: check(method="xclp-predict")),
    ("xclp", "numba", lambda: anew("fedul_flwr.propagation.compiled")),
    ("paper-protocols", "gmpy2", lambda: backend("paillier")),
    ("paper-protocols", "nacl", lambda: backend("ot")),
    ("hub", "datasets", lambda: load_source("somebody/data")),
    ("torchvision", "torchvision", lambda: build_model("resnet18", (32, 32, 3), 10)),
    ("torchvision", "torchvision", lambda: build_model("torchvision:alexnet", (224, 224, 3), 10)),
    ("torchvision", "torchvision", lambda: find_extractor("torchvision:resnet18", "cpu", "auto")),
    ("prometheus", "prometheus_client", lambda: anew("fedul_flwr.deploy.figures")),
    ("tracking", "tensorboard", lambda: refuse_missing("tensorboard")),
    ("tracking", "mlflow", lambda: refuse_missing("mlflow")),
    ("tune", "optuna", require_optuna),
    (
        "pretrained",
        "efficientnet_lite_pytorch",
        lambda: find_extractor("efficientnet-lite0", "cpu", "auto"),
    ),
    ("encoders", "transformers", lambda: find_extractor("huggingface:no/one", "cpu", "auto")),
    ("texts", "wordllama", lambda: find_extractor("wordllama", "cpu", "auto")),
    ("export", "onnxruntime", lambda: export("runs/none")),
    ("dicom", "pydicom", lambda: decode_image("scan.dcm", DICOM, (8, 8, 1))),
]


@pytest.mark.parametrize(
    ("extra", "package", "use"), USES, ids=[f"{e}-{i}" for i, (e, _, _) in enumerate(USES)]
)
def test_given_no_extra_then_the_error_names_it(
    extra: str, package: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:  # so that what is loaded without the package is taken back
        if name.startswith(("fedul_flwr.propagation.compiled", "fedul_flwr.deploy.figures")):
            monkeypatch.setitem(sys.modules, name, sys.modules[name])
    monkeypatch.setattr(encrypted_distances, "BACKENDS", dict(encrypted_distances.BACKENDS))
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    sentence = rf"needs .*{package}.*: pip install 'fedul-flwr\[{extra}\]'\.$"
    with refuses("package-missing", MissingPackageError, match=sentence):
        use()


def test_every_extra_has_its_error() -> None:
    assert {extra for extra, _, _ in USES} == EXTRAS.keys()


LIBRARIES = """
import multiprocessing.context, signal, os, sys
import filelock, flwr.serverapp.strategy, flwr.simulation, matplotlib.figure, pandas, psutil
import scipy.stats, sklearn.datasets, torch
"""
WITHOUT_EXTRAS = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
"""
WITHOUT_LINUX = f"""
{LIBRARIES}
def remove(module, names):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
remove(os, "O_DIRECTORY O_NOFOLLOW chown fchmod fork geteuid getgid getloadavg getuid killpg "
    "mkfifo register_at_fork sched_getaffinity setsid statvfs sysconf uname")
remove(signal, "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 alarm pthread_sigmask")
remove(multiprocessing.context, "ForkContext ForkServerContext")
for name in ("fcntl", "grp", "multiprocessing.forkserver", "pwd", "resource", "termios"):
    sys.modules[name] = None
"""
RUN = """
import fedul_flwr as ff
output = sys.argv[1]
run = ff.simulate("fedul", data="digits", clients=3, rounds=1, engine="in-process", output=output)
assert 0 < run.summary["test_error"] < 100
"""
REST = """
import numpy as np
from typer.testing import CliRunner
from fedul_flwr.cli.main import app
np.savez(f"{output}.npz", images=np.zeros((3, 8, 8), np.uint8))
for words in (
    ["report", output], ["predict", "--model", output, "--input", f"{output}.npz"],
    ["deploy", "init", f"{output}-deployed", "--address", "127.0.0.1:9092", "--owners", "2"],
    ["run", "-c", "partition=dirichlet num-rounds=1", "--output", f"{output}-dirichlet",
     "--engine", "in-process", "--num-supernodes", "3"],
):
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
"""


def run(program: str, folder: Path, *arguments: object) -> None:
    """Run a program whose first argument is ``folder / "run"``, and which writes there alone."""
    command = [sys.executable, "-c", program, str(folder / "run"), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_built_in_runs_pages_and_deployments_need_no_extra(tmp_path: Path) -> None:
    of_extras = set().union(*EXTRAS.values()) - CORE | {"flwr-datasets"}
    modules = [top for top, names in DISTRIBUTIONS.items() if names & of_extras]
    assert {"datasets", "numba", "nacl", "torchvision"} <= {*modules}
    run(WITHOUT_EXTRAS + RUN + REST, tmp_path, *modules)


def test_a_run_in_one_process_needs_nothing_that_only_linux_has(tmp_path: Path) -> None:
    run(WITHOUT_LINUX + RUN, tmp_path)


def test_the_package_needs_no_links(tmp_path: Path) -> None:
    # Git on Windows writes a link as a file with the path.
    for name in PACKAGES:
        (tmp_path / name).symlink_to(ROOT / name)
    package = tmp_path / "fedul_flwr"
    package.unlink()
    package.mkdir()
    for path in (ROOT / "fedul_flwr").iterdir():
        if path.is_symlink():
            (package / path.name).write_text(str(path.readlink()))
        else:
            (package / path.name).symlink_to(path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[1:] = []\n"
    program += "from fedul_flwr.config.methods import METHODS\nimport fedul_flwr\n"
    program += f"assert fedul_flwr.__path__ == [{str(package)!r}, {str(tmp_path)!r}]\n"
    program += "assert all(method.client_class for method in METHODS.values())"
    run(program, tmp_path)
