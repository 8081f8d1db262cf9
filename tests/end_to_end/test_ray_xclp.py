"""XCLP through the command line and Ray, in both of its uses, against the in-process grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import resolve
from tests.end_to_end.test_ray import fedul
from tests.support.runs import last_model, metrics, summary, train

pytestmark = pytest.mark.ray
CLIENTS = 20
SHARED = {
    **{"labels.total": 100, "labels.labeled-clients": 0.5, "xclp.num-bits": 512},
    **{"xclp.secure": "plaintext"},
}


def text(settings: dict[str, Any]) -> str:
    """Settings as ``-c`` takes them."""
    return " ".join(
        f"{key}={repr(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in settings.items()
    )


def on_ray(settings: dict[str, Any], place: Path) -> Path:
    arguments = ("-c", text(settings), "--num-supernodes", str(CLIENTS), "--output", "result")
    done = fedul("run", *arguments, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "result"


def in_process(settings: dict[str, Any], place: Path) -> Path:
    return train(resolve({**settings, "output": str(place / "here")}, place), CLIENTS)


def written(directory: Path) -> dict[str, str]:
    files = (directory / "clients").glob("*/*.csv")
    return {str(file.relative_to(directory)): file.read_text() for file in files}


def but_for_traffic(directory: Path) -> list[dict[str, Any]]:
    """Figures of all rounds; secrecy costs bytes."""
    return [
        {key: line[key] for key in line if not key.startswith(("bytes", "percent"))}
        for line in metrics(directory)
    ]


def pseudo_labels(directory: Path) -> dict[str, bytes]:
    files = (directory / "clients").glob("*/pseudo-labels-*")
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}


def test_prediction(tmp_path: Path) -> None:
    settings = {**SHARED, "method": "xclp-predict", "xclp-predict.leave-one-out": True}
    there = on_ray(settings, tmp_path)
    here = in_process(settings, tmp_path)
    assert written(there) == written(here)
    # One file each of three sources, for each client.
    assert len(written(there)) == 3 * CLIENTS
    keys = [key for key in summary(here) if not key.startswith("seconds")]
    assert {key: summary(there)[key] for key in keys} == {key: summary(here)[key] for key in keys}


def test_training_in_secret(tmp_path: Path) -> None:
    """By the default backend, against the same run in the clear: bit by bit."""
    settings = {**SHARED, "method": "xclp", "model": "mlp", "local-epochs": 1, "num-rounds": 3}
    settings |= {"semi.labels-only-rounds": 1, "fraction-train": 0.25}
    there = on_ray({**settings, "xclp.secure": "rlwe", "xclp.codes-seed": "run"}, tmp_path)
    here = in_process(settings, tmp_path)
    assert [line["clients"] for line in metrics(there)] == [5, 5, 5]
    assert but_for_traffic(there) == but_for_traffic(here)
    for name, array in last_model(there).items():
        np.testing.assert_array_equal(array, last_model(here)[name])
    assert sum(name.endswith("-3.safetensors") for name in pseudo_labels(there)) == 5
    assert pseudo_labels(there) == pseudo_labels(here)
    # Of a session no more is left behind than without one.
    left = [{file.name for file in (run / "clients").glob("*/*")} for run in (there, here)]
    assert left[0] == left[1]
