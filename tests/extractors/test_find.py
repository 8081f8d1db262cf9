"""Names of extractors, users' own functions, and refusals."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from fedul_flwr.config.shared import split_side
from fedul_flwr.extractors import pretrained
from fedul_flwr.extractors.find import Extractor, find_extractor
from tests.support.refusals import refuses

IMAGES = np.arange(2 * 2 * 2 * 1, dtype=np.uint8).reshape(2, 2, 2, 1)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = ModuleType("somebodys")
    monkeypatch.setitem(sys.modules, "somebodys", found)
    return found


def own(name: str) -> NDArray[np.float32]:
    return find_extractor(f"somebodys:{name}", "cpu", "float32").compute(IMAGES)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("efficientnet-lite0", ("efficientnet-lite0", 0)),
        ("efficientnet-lite0@128", ("efficientnet-lite0", 128)),
        ("run:/runs/me@home@32", ("run:/runs/me@home", 32)),
        ("x@0", ("x@0", 0)),
    ],
)
def test_a_side_in_pixels_follows_the_last_at_sign(name: str, wanted: tuple[str, int]) -> None:
    assert split_side(name) == wanted


def test_given_own_function_then_it_gets_points_as_they_are_stored(module: ModuleType) -> None:
    seen = []

    def function(points: NDArray[np.uint8]) -> NDArray[np.float64]:
        seen.append(points)
        return points.reshape(len(points), -1) / 2

    module.function = function  # type: ignore[attr-defined]
    found = own("function")
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 0.5, 1, 1.5], [2, 2.5, 3, 3.5]]
    assert np.array_equal(seen[0], IMAGES)
    assert find_extractor("somebodys:function", "cpu", "float32").num_features((4, 4, 3)) == 48


def test_given_a_function_that_draws_then_it_draws_the_same_for_all_points(
    module: ModuleType,
) -> None:
    def project(points: Any) -> Any:
        return points.reshape(len(points), -1) @ np.random.rand(4, 2)  # noqa: NPY002

    module.function = project  # type: ignore[attr-defined]
    assert own("function").tolist() == own("function").tolist()


@pytest.mark.parametrize(
    "returned",
    [np.zeros(2), np.zeros((3, 4)), np.zeros((2, 0)), np.full((2, 1), np.nan)],
    ids=["no rows", "other rows", "no features", "not finite"],
)
def test_wrong_results_are_refused(module: ModuleType, returned: NDArray[np.float64]) -> None:
    module.function = lambda points: returned  # type: ignore[attr-defined]
    with refuses("own-code-result", match="Setting features"):
        own("function")
    module.function = lambda points: 1 / 0  # type: ignore[attr-defined]
    with refuses("own-code-failed"):
        own("function")


def test_given_a_run_then_its_model_is_opened_at_the_server_only() -> None:
    opened = []

    def open_run(directory: Path) -> nn.Module:
        opened.append(directory)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))

    extractor = find_extractor("run:/runs/first", "cpu", "float32", open_run)
    assert opened == [Path("/runs/first")]
    # Images in [-1, 1], with the channel first: level / 127.5 - 1.
    np.testing.assert_allclose(
        extractor.compute(IMAGES), IMAGES.reshape(2, 4) / 127.5 - 1, rtol=1e-5
    )
    with refuses("setting-of-one-machine", setting="features"):
        find_extractor("run:/runs/first", "cpu", "float32")


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Loads so far of a network whose weights are the number in ``tmp_path/weights``."""
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    loads: list[float] = []
    file = tmp_path / "weights"
    file.write_text("1.0", encoding="utf-8")

    def load() -> pretrained.LoadedNetwork:
        loads.append(float(file.read_text(encoding="utf-8")))
        layer = nn.Linear(4, 3)
        nn.init.constant_(layer.weight, loads[-1])
        nn.init.zeros_(layer.bias)
        return pretrained.LoadedNetwork(nn.Sequential(nn.Flatten(), layer), 2)

    monkeypatch.setattr(pretrained, "efficientnet_lite0", load)
    monkeypatch.setattr(pretrained, "efficientnet_lite0_files", lambda: [file])
    return loads


def found() -> Extractor:
    return find_extractor("efficientnet-lite0", "cpu", "float32")


def test_given_a_network_of_before_then_only_features_load_it(loaded: list[float]) -> None:
    first = found()
    assert loaded == [1.0]
    again = found()
    assert loaded == [1.0]
    assert again.identity == first.identity
    assert again.compute(np.zeros((2, 2, 2, 1), dtype=np.uint8)).shape == (2, 4)
    again.compute(np.zeros((1, 2, 2, 1), dtype=np.uint8))
    assert loaded == [1.0, 1.0]
