"""What a client's process imports: on a device it is a new one for every message."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, os, sys
from fedul_flwr.client_app import app
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import parse_flat
for name in sys.argv[1:]:
    if os.fork() == 0:  # each method starts from what all of them import
        settings = parse_flat({"method": name})
        find_method(name).client_class
        print(json.dumps([name, list(sys.modules)]), flush=True)
        os._exit(0)
    os.wait()
"""
HEAVY = {"torch", "torchvision", "sklearn", "datasets", "ray", "matplotlib"}
FOLDERS = {"fedul_flwr.strategies", "fedul_flwr.client_apps", "fedul_flwr.baselines"}
NAMES = ("fedul", "xclp", "xclp-predict", "fedmatch", "fixmatch")


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Modules in the process of a method's client."""
    command = [sys.executable, "-c", CODE, *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: set(found) for name, found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("method", ["fedul", "xclp", "fedmatch", "fixmatch"])
def test_a_client_imports_its_own_method_alone(method: str, imported: dict[str, set[str]]) -> None:
    parts = [name.rpartition(".") for name in imported[method]]
    own = {own for folder, _, own in parts if folder in FOLDERS}
    assert method in own
    assert own <= {method, f"{method}_parts"}


@pytest.mark.parametrize("method", NAMES)
def test_phases_without_a_model_need_no_torch(method: str, imported: dict[str, set[str]]) -> None:
    assert HEAVY & {name.split(".")[0] for name in imported[method]} == set()
