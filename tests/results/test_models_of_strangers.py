"""A model from somebody else: nothing is downloaded, and nothing is made larger than its file."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from fedul_flwr.config.shared import MODEL_NAMES
from fedul_flwr.models import build_model
from fedul_flwr.models.registry import FOR_VECTORS
from fedul_flwr.results.predict import load_model
from tests.support.refusals import refuses


def write(folder: Path, settings: dict[str, Any], **data: Any) -> Path:
    """A run's folder with a small ``mlp``, and what its files say of it."""
    shape = {"input_shape": [4], "num_classes": 3, "class_names": ["a", "b", "c"]}
    flat = {"model": "mlp", "model-width": 8, "model-layers": 2, **settings}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"settings": flat, "data": {**shape, **data}}))
    from fedul_flwr.config.shared import ModelOptions

    model = build_model("mlp", (4,), 3, options=ModelOptions(8, 2))
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("settings", "data", "code"),
    [
        ({"model-width": 10_000_000}, {}, "setting-out-of-range"),
        ({"model-width": 65_536}, {}, "model-mismatch"),
        ({"model-layers": 1_000_000_000}, {}, "setting-out-of-range"),
        ({"model-width": "8"}, {}, "setting-wrong-type"),
        ({}, {"input_shape": [200_000_000]}, "model-mismatch"),
        ({}, {"input_shape": [10**6, 10**6, 3]}, "run-file-wrong"),
        ({}, {"num_classes": 10**12, "class_names": None}, "run-file-wrong"),
        ({}, {"num_classes": 10**7, "class_names": None}, "model-mismatch"),
    ],
    ids=str,
)
def test_given_sizes_that_its_weights_do_not_have_then_nothing_is_allocated(
    settings: dict[str, Any], data: dict[str, Any], code: str, tmp_path: Path
) -> None:
    with refuses(code):
        load_model(write(tmp_path / "run", settings, **data))


def test_given_its_own_sizes_then_it_opens(tmp_path: Path) -> None:
    load_model(write(tmp_path / "run", {}))


@pytest.mark.parametrize("name", [*MODEL_NAMES, "mlp+head", "torchvision:resnet18"])
def test_every_model_opens_by_its_own_weights(name: str, tmp_path: Path) -> None:
    shape = (4,) if name.removesuffix("+head") in FOR_VECTORS else (32, 32, 3)
    folder = write(tmp_path / "run", {"model": name, "model-width": 128}, input_shape=[*shape])
    save_file(build_model(name, shape, 3).state_dict(), folder / "model.safetensors")
    load_model(folder)


def test_given_a_repository_that_a_stranger_names_then_nobody_is_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody is asked")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    folder = write(tmp_path / "run", {"features": "huggingface:somebody/nothing"})
    with refuses("file-missing", match="somebody/nothing"):
        load_model(folder)
