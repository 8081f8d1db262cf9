"""What a client's process imports: on a device it is a new one for every message."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedul_flwr.methods import METHODS

CODE = """
import sys
from fedul_flwr.client_app import app
from fedul_flwr.config.references import load_reference
load_reference({reference!r}, "method")
print(*sorted(name for name in sys.modules if name.split(".")[0] in {watched!r}))
"""
WATCHED = ("torch", "torchvision", "sklearn", "datasets", "ray", "matplotlib", "strategies")
OWN = ("client_apps", "baselines")

MODULES = {
    "fedul": {"fedul"},
    "xclp": {"xclp"},
    "fedmatch": {"fedmatch"},
    "fixmatch": {"fixmatch"},
}


def imported(method: str, watched: tuple[str, ...]) -> set[str]:
    code = CODE.format(reference=METHODS[method].client, watched=watched)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("method", MODULES)
def test_a_client_imports_its_own_method_alone(method: str) -> None:
    found = {name.partition(".")[2] for name in imported(method, OWN)} - {""}
    assert found == MODULES[method]


@pytest.mark.parametrize("method", ["fedul", "xclp-predict"])
def test_phases_without_a_model_do_without_torch(method: str) -> None:
    assert imported(method, WATCHED) == set()
