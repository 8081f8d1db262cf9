"""``fedul-flwr cache``: what decoded data take, and their end."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.safe_files import KINDS, build_once, cache_key, measure_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an entry of each kind, and things that are not its own."""
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    for kind in KINDS:
        key = cache_key(kind)
        build_once(
            tmp_path / "cache" / kind / key,
            lambda folder: np.save(folder / "images.npy", np.zeros(872, np.uint8)),
        )
    (tmp_path / "cache" / "thesis").mkdir()
    (tmp_path / "cache" / "owned" / "thesis.txt").touch()
    (tmp_path / "cache" / "owned" / ("0" * 24)).symlink_to(tmp_path)
    return tmp_path / "cache"


def said(*options: str) -> str:
    done = CliRunner().invoke(app, ["cache", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_given_a_cache_when_asked_then_place_and_size_are_shown(cache: Path) -> None:
    # An array of 872 bytes has a header of 128: five of 1,000 bytes, one no data.
    assert (measure_cache().entries, measure_cache().num_bytes) == (4, 5000)
    assert said() == f"Cache in {cache}: 4 data sets and splits, 5 kB\n"
    assert measure_cache().entries == 4


def test_given_a_cache_when_cleared_then_its_data_are_gone_and_nothing_else(cache: Path) -> None:
    assert said("--clear") == f"Deleted from {cache}: 4 data sets and splits, 5 kB\n"
    assert measure_cache().num_bytes == 0
    assert (cache / "thesis").is_dir()
    assert (cache / "owned" / "thesis.txt").is_file()
    assert (cache / "owned" / ("0" * 24)).is_symlink()
