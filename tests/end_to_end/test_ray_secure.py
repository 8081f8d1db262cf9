"""XCLP in secret through the command line and Ray, against the same run in the clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config import resolve
from tests.end_to_end.test_ray import fedul
from tests.end_to_end.test_ray_partly_labeled import text, written
from tests.runs import train

pytestmark = pytest.mark.ray
CLIENTS = 4
SHARED = {"labels.total": 60, "points-per-client": 60, "xclp.num-bits": 512}


def in_secret(settings: dict[str, Any], place: Path) -> Path:
    """On Ray, with the default backend."""
    settings = {**settings, "xclp.codes-seed": "run"}
    arguments = ("-c", text(settings), "--num-supernodes", str(CLIENTS), "--output", "result")
    done = fedul("run", *arguments, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "result"


def in_the_clear(settings: dict[str, Any], place: Path) -> Path:
    flat = {**settings, "xclp.secure": "plaintext", "output": str(place / "clear")}
    return train(resolve(flat, place), CLIENTS)


def test_the_same_labels(tmp_path: Path) -> None:
    settings = {**SHARED, "method": "xclp-predict"}
    secret, clear = in_secret(settings, tmp_path), in_the_clear(settings, tmp_path)
    assert written(secret) == written(clear)
    assert len(written(secret)) == 2 * CLIENTS  # across clients and within each
    # Of a session no more is left behind than without one.
    names = [{file.name for file in (run / "clients").glob("*/*")} for run in (secret, clear)]
    assert names[0] == names[1]
