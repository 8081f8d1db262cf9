"""First weights from another run, a file or torchvision: what is taken, what stays, what not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision import transforms

from fedul_flwr.errors import UserError
from fedul_flwr.models import build_model
from fedul_flwr.run.setup import load_starting_weights
from tests.support.runs import last_model, train
from tests.support.settings import Settings

SMALL = "mobilenet_v3_small"


def model(name: str = "mlp", num_classes: int = 10, seed: int = 0) -> nn.Module:
    return build_model(name, (12, 12, 1), num_classes, seed)


def copy_of(found: nn.Module) -> dict[str, Tensor]:
    return {name: array.clone() for name, array in found.state_dict().items()}


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., str]:
    """``saved(arrays)``: path of a file that holds them."""

    def write(arrays: dict[str, Tensor]) -> str:
        save_file(arrays, tmp_path / "weights.safetensors")
        return str(tmp_path / "weights.safetensors")

    return write


Saved = Callable[..., str]


@pytest.mark.parametrize(
    ("first", "classes", "name", "fresh"),
    [
        ("cnn13-quarter", 10, "cnn13-quarter", []),
        ("mlp+head", 10, "mlp+head", []),
        # A second head is added to a model with one.
        ("mlp", 10, "mlp+head", ["second.weight", "second.bias"]),
        ("mlp", 10, "mlp+projections",
         ["of_features.weight", "of_features.bias", "of_rows.weight"]),
        # Heads of other classes stay fresh.
        ("mlp", 7, "mlp", ["5.weight", "5.bias"]),
        ("cnn13-quarter", 7, "cnn13-quarter",
         ["34.bias", "34.parametrizations.weight.original0",
          "34.parametrizations.weight.original1"]),
        ("mlp+head", 7, "mlp+head",
         ["second.weight", "second.bias", "model.5.weight", "model.5.bias"]),
    ],
)  # fmt: skip
def test_given_a_model_then_all_its_weights_are_taken_but_those_of_other_or_no_heads(
    saved: Saved, first: str, classes: int, name: str, fresh: list[str]
) -> None:
    source, target = copy_of(model(first, num_classes=classes, seed=1)), model(name, seed=2)
    before = copy_of(target)
    assert load_starting_weights(target, saved(source)) == fresh
    for key, array in target.state_dict().items():
        there = key if key in source else key.removeprefix("model.")
        assert array.equal(before[key] if key in fresh else source[there]), key


@pytest.mark.parametrize(
    ("change", "array"),
    [
        ({"1.bias": None}, "1.bias"),
        ({"1.bias": torch.zeros(3)}, "1.bias"),
        # Other classes, but also other features: not the head of this model.
        ({"5.weight": torch.zeros(7, 3)}, "5.weight"),
    ],
)
def test_another_models_weights(saved: Saved, change: dict[str, Tensor | None], array: str) -> None:
    changed: dict[str, Any] = copy_of(model(seed=1)) | change
    path = saved({name: array for name, array in changed.items() if array is not None})
    target = model(seed=2)
    before = copy_of(target)
    with pytest.raises(UserError, match=f"array '{array}'"):
        load_starting_weights(target, path)
    assert all(array.equal(before[key]) for key, array in target.state_dict().items())


def test_a_source_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_text("no weights")
    for path, message in {
        tmp_path: "holds no model.safetensors.",
        tmp_path / "missing": "there is no such file or directory.",
        broken: "broken.safetensors is no readable safetensors file (",
    }.items():
        with pytest.raises(UserError) as error:
            load_starting_weights(model(), str(path))
        assert str(error.value).startswith(f"Setting start-from = {str(path)!r}: {message}")


# torchvision's own weights


@pytest.fixture
def pretrained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """What a download gives: a model of ImageNet's classes."""
    from torchvision import models
    from torchvision.models import _api

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        weights: dict[str, Tensor] = models.get_model(SMALL, weights=None).state_dict()
    monkeypatch.setattr(_api, "load_state_dict_from_url", lambda *_, **__: weights)
    return weights


@pytest.mark.parametrize("suffix", ["", "+head"])
@pytest.mark.parametrize("num_classes", [7, 1000])
def test_pretrained_weights(pretrained: dict[str, Tensor], suffix: str, num_classes: int) -> None:
    target = model(f"torchvision:{SMALL}{suffix}", num_classes, seed=2)
    before, place = copy_of(target), "model.net." if suffix else "net."
    fresh = load_starting_weights(target, "torchvision")
    second = ["second.weight", "second.bias"] if suffix else []
    assert fresh == [*second, f"{place}classifier.3.weight", f"{place}classifier.3.bias"]
    for key, array in target.state_dict().items():
        expected = before[key] if key in fresh else pretrained[key.removeprefix(place)]
        assert array.equal(expected), key


def test_feduls_resnet_starts_from_torchvisions_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import models
    from torchvision.models import _api

    own: Any = models.resnet18(weights=None).eval()
    monkeypatch.setattr(_api, "load_state_dict_from_url", lambda *_, **__: own.state_dict())
    target: Any = model("resnet18-fedul", 7, seed=2).eval()
    assert load_starting_weights(target, "torchvision") == ["net.fc.weight", "net.fc.bias"]
    own.maxpool, own.fc = nn.Identity(), target.net.fc
    images = torch.rand(2, 3, 32, 32)
    normalized = transforms.functional.normalize(
        images, [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]
    )
    with torch.no_grad():
        torch.testing.assert_close(target(2 * images - 1), own(normalized))


# Through a run


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:

    def start(**options: Any) -> Path:
        return train(settings(**{"model": "mlp", "num_rounds": 1, "local_epochs": 1, **options}), 2)

    return start


STILL = {"optimizer": "sgd", "learning_rate": 1e-30}
"""A step size that no weight feels."""


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_run_starts_where_another_ended(run: Callable[..., Path], precision: str) -> None:
    first = run(precision="float32")
    best = load_file(first / "model.safetensors")
    for source in (first, first / "model.safetensors"):
        found = last_model(run(start_from=str(source), precision=precision, **STILL))
        assert found.keys() == best.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, best[name])
    elsewhere = last_model(run(**STILL))
    assert not np.array_equal(elsewhere["1.weight"], best["1.weight"])
