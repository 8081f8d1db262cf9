"""Features are computed once for the same points and extractor, and kept on disk."""

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.data.types import Inputs
from fedul_flwr.extractors.find import BATCH, Extractor, feature_array, feature_source


class Sums:
    """Computes the sum of every point and its square; counts its points."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, points: Inputs) -> NDArray[np.float32]:
        self.count += len(points)
        assert len(points) <= BATCH
        sums = points.reshape(len(points), -1).sum(axis=1, dtype=np.float32)
        return np.stack([sums, sums**2], axis=1)


def extractor(sums: Sums, version: str = "1") -> Extractor:
    return Extractor("sums", ("sums", version), sums)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path))


def test_given_a_data_set_then_its_points_are_replaced_and_all_else_stays() -> None:
    place = source_directory("digits")
    sums = Sums()
    found = feature_source(place, extractor(sums))
    before, after = read_source(place), read_source(found)
    for one, other in ((before.train, after.train), (before.test, after.test)):
        wanted = one.inputs.reshape(len(one), -1).sum(axis=1)
        assert other.inputs.dtype == np.float32
        assert np.array_equal(other.inputs[:, 0], wanted)
        assert np.array_equal(one.labels, other.labels)
    assert after.class_names == before.class_names
    assert after.input_shape == (2,)
    assert json.loads((found / "meta.json").read_text())["extractor"] == "sums"
    assert sums.count == len(before.train) + len(before.test)


def test_given_features_on_disk_then_nothing_is_computed_again() -> None:
    place = source_directory("digits")
    first, again, other = Sums(), Sums(), Sums()
    found = feature_source(place, extractor(first))
    assert feature_source(place, extractor(again)) == found
    assert again.count == 0
    assert feature_source(place, extractor(other, "2")) != found
    assert other.count > 0


def test_given_an_owners_points_then_only_the_owner_reads_them(tmp_path: Path) -> None:
    points = np.random.default_rng(0).integers(0, 256, (BATCH + 1, 2, 2, 1), dtype=np.uint8)
    sums, again = Sums(), Sums()
    found = feature_array(points, extractor(sums), tmp_path)
    assert np.array_equal(found[:, 0], points.reshape(BATCH + 1, 4).sum(axis=1))
    assert np.array_equal(feature_array(points.copy(), extractor(again), tmp_path), found)
    assert (sums.count, again.count) == (BATCH + 1, 0)
    (folder,) = (path for path in (tmp_path / "owned").iterdir() if path.is_dir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    changed = points.copy()
    changed[0, 0, 0, 0] ^= 1
    assert feature_array(changed, extractor(again), tmp_path)[0, 0] != found[0, 0]
