"""What a client's process imports: on a device it is a new one for every message."""

import json
import subprocess
import sys

import pytest

from fedul_flwr.config.methods import METHODS

CODE = """
import json, os, sys
from fedul_flwr.client_app import app
from fedul_flwr.config.base import load_reference
for name, reference in json.loads(sys.argv[1]).items():
    if os.fork() == 0:  # each method starts from what all of them import
        load_reference(reference, "method")
        print(json.dumps([name, list(sys.modules)]), flush=True)
        os._exit(0)
    os.wait()
"""
HEAVY = {"torch", "torchvision", "sklearn", "datasets", "ray", "matplotlib"}
METHODS_FOLDERS = {"fedul_flwr.client_apps", "fedul_flwr.baselines"}


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Modules in the process of a method's client."""
    names = ("fedul", "xclp", "xclp-predict", "fedmatch", "fixmatch")
    clients = json.dumps({name: METHODS[name].client for name in names})
    command = [sys.executable, "-c", CODE, clients]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: set(found) for name, found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("method", ["fedul", "xclp", "fedmatch", "fixmatch"])
def test_a_client_imports_its_own_method_alone(method: str, imported: dict[str, set[str]]) -> None:
    parts = [name.rpartition(".") for name in imported[method]]
    assert {own for folder, _, own in parts if folder in METHODS_FOLDERS} == {method}


@pytest.mark.parametrize("method", ["fedul", "xclp-predict"])
def test_phases_without_a_model_need_no_torch(method: str, imported: dict[str, set[str]]) -> None:
    assert HEAVY & {name.split(".")[0] for name in imported[method]} == set()
    assert "fedul_flwr.strategies" not in imported[method]
