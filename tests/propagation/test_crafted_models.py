"""Models that a lying server sends to XCLP's clients, so that distances of features tell pixels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import SETTINGS, SETUP
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from fedul_flwr.models.registry import fresh_model
from fedul_flwr.propagation.codes import encode
from tests.support.learnable_owners import NAMES, NO_DATA, write_labeled
from tests.support.refusals import refuses

BITS = 4096
Arrays = dict[str, NDArray[Any]]


def crafted(first: Arrays, pixel: int, length: float) -> Arrays:
    """``first``, an ``mlp``, after a step of L2 norm ``length``: a path from one pixel to one
    feature, and a feature that is the same for all points."""
    step = {name: np.zeros_like(array) for name, array in first.items()}
    side = length / 2
    step["1.weight"][0, pixel] = step["3.weight"][0, 0] = side
    step["3.bias"][1] = min(side * side / 2, 1.2 * side)
    norm = np.sqrt(sum((array**2).sum() for array in step.values()))
    return {name: array + step[name] * length / max(norm, 1e-12) for name, array in first.items()}


def features(model: Arrays, points: NDArray[Any]) -> NDArray[np.float32]:
    hidden = np.maximum(points @ model["1.weight"].T + model["1.bias"], 0)
    return np.maximum(hidden @ model["3.weight"].T + model["3.bias"], 0).astype(np.float32)


def pixel_by_distances(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the server makes of H: the direction in which angles between points differ most."""
    codes = encode(values, b"k" * 32, BITS)
    signs = 1 - 2 * np.unpackbits(codes, axis=1).astype(np.float32)
    angles = np.pi * (BITS - signs @ signs.T) / 2 / BITS
    center = np.eye(len(angles)) - 1 / len(angles)
    return np.asarray(np.linalg.eigh(-center @ angles**2 @ center / 2)[1][:, -1])


def correlation(length: float) -> float:
    """Of pixels, mean over eight of them, with what H tells by models ``length`` from the first."""
    points = load_digits().data[:150] / 16.0
    model = build_model("mlp", (8, 8, 1), 3)
    first = {name: array.numpy().copy() for name, array in model.state_dict().items()}
    pixels = [18, 20, 26, 29, 34, 36, 42, 45]
    read = {p: pixel_by_distances(features(crafted(first, p, length), points)) for p in pixels}
    return float(np.mean([abs(np.corrcoef(read[p], points[:, p])[0, 1]) for p in pixels]))


def test_the_further_a_model_may_be_from_the_first_the_more_distances_tell() -> None:
    """The figures of docs/privacy.md; the first weights have a norm of 9.3."""
    nothing, near, middle, far = (correlation(length) for length in (0.0, 0.3, 2.0, 5.0))
    assert near < nothing + 0.05
    assert middle > 0.65
    assert far > 0.85


def xclp_client(tmp_path: Path, **limits: bool) -> XCLPClient:
    write_labeled(tmp_path / "data", seed=0)
    flat = {"method": "xclp", "model": "mlp", "num-rounds": 20, "max-update-norm": 0.1, **NO_DATA}
    flat |= {"learning-rate": 0.01, "precision": "float32"}
    settings, state = parse_flat(flat), ClientState(RecordDict())
    shape = {"input-shape": [8, 8, 1], "model-shape": [8, 8, 1], "class-names": [*NAMES]}
    state.set_values(SETUP, {SETTINGS: json.dumps(flat), **shape})
    return XCLPClient(settings, NodeConfig(data=str(tmp_path / "data"), **limits), state)


@pytest.mark.parametrize("checks", [False, True])
def test_given_a_crafted_model_when_an_owner_checks_models_then_nothing_is_compared(
    checks: bool, tmp_path: Path
) -> None:
    client = xclp_client(tmp_path, check_models=checks)
    first = dump_arrays(fresh_model(client.settings, (8, 8, 1), len(NAMES)))
    # Ten rounds move it by 1 at most: none but the last are far enough.
    client._features(crafted(first, 20, 0.9), 11)
    if checks:
        with refuses("owner-does-not-allow", limit="check-models"):
            client._features(crafted(first, 20, 5.0), 12)
    else:
        client._features(crafted(first, 20, 5.0), 12)
