"""XCLP's labels through the command line and Ray, against the in-process grid."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import resolve
from tests.end_to_end.test_ray import ALL_CPUS, fedul, text
from tests.support.runs import summary, train

pytestmark = [pytest.mark.ray, pytest.mark.slow]
CLIENTS = 20
SHARED = {
    **{"labels.total": 100, "labels.labeled-clients": 0.5, "xclp.num-bits": 512},
    **{"xclp.secure": "plaintext"},
}


def on_ray(settings: dict[str, Any], place: Path) -> Path:
    arguments = ("-c", text(settings), "--num-supernodes", str(CLIENTS), "--output", "result")
    done = fedul("run", "--engine", "ray", *arguments, "--client-cpus", ALL_CPUS, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "result"


def in_process(settings: dict[str, Any], place: Path) -> Path:
    return train(resolve({**settings, "output": str(place / "here")}, place), CLIENTS)


def written(directory: Path) -> dict[str, str]:
    files = (directory / "clients").glob("*/*.csv")
    return {str(file.relative_to(directory)): file.read_text() for file in files}


def test_prediction(tmp_path: Path) -> None:
    settings = {**SHARED, "method": "xclp-predict", "xclp-predict.leave-one-out": True}
    there = on_ray(settings, tmp_path)
    here = in_process(settings, tmp_path)
    assert written(there) == written(here)
    # One file each of three sources, for each client.
    assert len(written(there)) == 3 * CLIENTS
    keys = [key for key in summary(here) if not key.startswith("seconds")]
    assert {key: summary(there)[key] for key in keys} == {key: summary(here)[key] for key in keys}
