"""Facts about a network: kept on disk, and found anew when its files change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from fedul_flwr.data.cache import clear_cache, measure_cache
from fedul_flwr.extractors import pretrained
from fedul_flwr.extractors.find import Extractor, find_extractor


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
        return nn.Sequential(nn.Flatten(), layer), 2

    monkeypatch.setattr(pretrained, "efficientnet_lite0", load)
    monkeypatch.setattr(pretrained, "efficientnet_lite0_files", lambda: [file])
    return loads


def found() -> Extractor:
    return find_extractor("efficientnet-lite0", "cpu", "float32")


def test_given_a_network_that_was_loaded_before_then_only_features_load_it(
    loaded: list[float],
) -> None:
    first = found()
    assert loaded == [1.0]
    again = found()
    assert loaded == [1.0]
    assert again.identity == first.identity
    assert again.compute(np.zeros((2, 2, 2, 1), dtype=np.uint8)).shape == (2, 4)
    again.compute(np.zeros((1, 2, 2, 1), dtype=np.uint8))
    assert loaded == [1.0, 1.0]


def test_given_other_weights_in_the_file_then_the_network_is_another(
    loaded: list[float], tmp_path: Path
) -> None:
    before = found().identity
    (tmp_path / "weights").write_text("2.00", encoding="utf-8")
    assert found().identity != before
    assert loaded == [1.0, 2.0]


def test_given_a_damaged_or_cleared_fact_then_the_network_is_loaded(
    loaded: list[float], tmp_path: Path
) -> None:
    before = found().identity
    (file,) = (tmp_path / "cache" / "networks").rglob("network.json")
    assert json.loads(file.read_text(encoding="utf-8"))["num_weights"] == 4 * 3 + 3
    assert measure_cache().entries == 0  # no data
    file.write_text("{", encoding="utf-8")
    assert found().identity == before
    clear_cache()
    assert found().identity == before
    assert loaded == [1.0] * 3
