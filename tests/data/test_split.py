"""A simulated federation on disk: cached, shared by methods, and without labels for clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data import split as split_module
from fedul_flwr.data.safe_files import read_arrays
from fedul_flwr.data.split import (
    Split,
    build_split,
    client_files,
    generate_sets,
    open_labeled_points,
    open_unlabeled_sets,
)
from tests.data.conftest import write_source
from tests.support.refusals import refuses

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [160, 120, 80, 40]))


def config(**options: Any) -> RunConfig:
    """Settings; the majority partition needs no library, and so less time."""
    values = {"partition": "majority", "fedul.num-sets": 6, "validation-fraction": 0.25}
    return parse_flat({**default_flat(), **values, **options})


def build(place: Path, num_clients: int = 3, **options: Any) -> Split:
    return build_split(place, num_clients, config(**options))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A decoded data set of 400 points in 4 classes."""
    return write_source(tmp_path / "data", LABELS)


def test_a_federation_is_built_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    write = split_module._write
    monkeypatch.setattr(split_module, "_write", lambda *args: (built.append(args[0]), write(*args)))
    first, second = build(place), build(place)
    assert len(built) == 1
    assert first.directory == second.directory
    assert build(place, seed=1).directory != first.directory
    assert len(built) == 2


def test_the_servers_labeled_points_are_nobody_elses(place: Path) -> None:
    without = build(place)
    split = build(place, **{"server-fraction": 0.25})
    # A quarter of 160, 120, 80 and 40 each.
    for points in (split.server, split.validation):
        np.testing.assert_array_equal(np.bincount(LABELS[points]), [40, 30, 20, 10])
    np.testing.assert_array_equal(split.validation, without.validation)
    assert (np.diff(split.validation) > 0).all()
    assert len(split.clients) == 3
    held = [np.unique(client.points) for client in split.clients]
    everything = np.concatenate([split.validation, split.server, *held])
    assert len(np.unique(everything)) == len(everything)
    assert len(without.server) == 0
    assert len(np.concatenate(held)) < sum(len(np.unique(c.points)) for c in without.clients)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
@pytest.mark.parametrize("key", ["validation-fraction", "server-fraction"])
def test_a_fraction_too_small_or_large_is_refused(place: Path, key: str, fraction: float) -> None:
    with refuses("setting-unfit-for-data", setting=key):
        build(place, **{"validation-fraction": 0.0, key: fraction})


def test_unlabeled_training_points_are_refused(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[[3, 5, 8]] = -1
    with refuses("labels-missing"):
        build_split(write_source(tmp_path / "gaps", labels), 3, config())


def test_what_is_read_is_what_was_generated(place: Path) -> None:
    settings = config(**{"fedul.prior-noise": 0.5, "seed": 3})
    split = build_split(place, 3, settings)
    table = settings[UnlabeledSetSettings]
    for client, truth in enumerate(split.clients):
        # Every point of a client is in one of its sets: its points are known from them.
        expected = generate_sets(LABELS, np.unique(truth.points), 4, client, table, seed=3)
        opened = open_unlabeled_sets(client_files(place, split.directory), client)
        for found in (truth, opened):
            for name in ("points", "sets", "priors"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        np.testing.assert_array_equal(truth.true_priors, expected.true_priors)
        np.testing.assert_array_equal(opened.drawn_priors, expected.drawn_priors)
        assert not np.array_equal(truth.priors, truth.true_priors)


def test_unlabeled_sets_need_no_file_that_holds_a_label(place: Path) -> None:
    split = build(place)
    expected = open_unlabeled_sets(client_files(place, split.directory), 1)
    read_arrays.cache_clear()
    kept = {"train_inputs.npy", "sets.npz"}
    for file in [*place.iterdir(), *split.directory.iterdir()]:
        if file.name not in kept:
            file.unlink()
    found = open_unlabeled_sets(client_files(place, split.directory), 1)
    for name in ("points", "sets", "priors", "inputs"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.inputs.shape == (400, 4, 4, 1)
    with pytest.raises(FileNotFoundError):
        open_labeled_points(client_files(place, split.directory, "labels"), 1)


def test_the_file_for_clients_holds_no_labels(place: Path) -> None:
    split = build(place)
    with np.load(split.directory / "sets.npz") as archive:
        assert set(archive.files) == {
            *("points", "sets", "priors", "drawn_priors", "posterior_means", "concentrations"),
            *("point_bounds", "set_bounds"),
        }
