"""XCLP for prediction: files of labels against propagation by hand, groups, edges, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.run_files.label_files import (
    LEFT_OUT,
    LOCAL_LP,
    NETWORK,
    SOURCES,
    XCLP,
    file_name,
    read_labels,
)
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.types import Propagated
from fedul_flwr.learning.local import features_and_logits, load_arrays, pixel_features
from fedul_flwr.learning.pseudo_labels import network_labels
from fedul_flwr.models import build_model
from fedul_flwr.propagation.central import label_propagation
from tests.support.refusals import refuses
from tests.support.runs import last_model, summary, train
from tests.support.settings import Settings

BARE: dict[str, Any] = {"method": "xclp-predict", "xclp.num-bits": 256}
QUICK: dict[str, Any] = {**BARE, "labels.total": 60, "points_per_client": 80}


class Held:
    """What ``split.npz`` says that each client has."""

    def __init__(self, directory: Path) -> None:
        with np.load(directory / "split.npz") as found:
            cuts = found["bounds"][1:-1]
            self.points, self.labels, self.new = (
                np.split(found[name], cuts) for name in ("points", "labels", "new")
            )


def read(directory: Path, client: int, source: str = XCLP) -> tuple[list[int], Propagated]:
    names, found = read_labels(directory / "clients" / str(client) / file_name(source))
    return [int(name) for name in names], found


def central(
    held: Held, members: list[int], group: int = 0, **more: Any
) -> dict[int, tuple[NDArray[np.int64], Propagated]]:
    """What propagation in one place says: of each member, all of its points."""
    images = load_source("digits").train.inputs
    points = np.concatenate([held.points[client] for client in members])
    labels = np.concatenate([held.labels[client] for client in members])
    shown = more.pop("shown", np.ones(len(points), dtype=bool))
    for client in more.pop("without", ()):
        labels = np.where(np.isin(points, held.points[client]), -1, labels)
    found = label_propagation(
        more.pop("features", pixel_features)(images, points[shown]),
        labels[shown],
        num_classes=10,
        num_bits=256,
        seed=more.pop("seed", None) or stream(0, "codes", group).bytes(32),
        **more,
    )
    return {
        client: (points[shown][own], Propagated(found.labels[own], found.confidence[own]))
        for client in members
        if (own := np.isin(points[shown], held.points[client])).any()
    }


def assert_file(
    directory: Path,
    client: int,
    expected: tuple[NDArray[np.int64], Propagated],
    asked: NDArray[np.bool_],
    source: str = XCLP,
) -> None:
    """The file of ``client`` holds what is ``expected`` of the points that are ``asked`` for."""
    points, found = expected
    names, labels = read(directory, client, source)
    assert names == points[asked].tolist()
    np.testing.assert_array_equal(labels.labels, found.labels[asked])
    np.testing.assert_allclose(labels.confidence, found.confidence[asked], rtol=0, atol=3e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_files_hold_what_propagation_in_one_place_says(settings: Settings, groups: int) -> None:
    options: dict[str, Any] = {"xclp-predict.groups": groups, "labels.labeled-clients": 0.6}
    directory = train(settings(**QUICK, **options), 5)
    held = Held(directory)
    order = stream(0, "groups").permutation(5)
    parts = [list(range(5))] if groups == 1 else [sorted(order[:3]), sorted(order[3:])]
    for group, members in enumerate(parts):
        for client, expected in central(held, members, group).items():
            assert_file(directory, client, expected, held.labels[client] < 0)
    assert summary(directory)["answered_clients"] == 5
    # On its own each client finds something else, or nothing.
    for client in range(5):
        own = central(held, [client], seed=bytes(32))[client]
        assert_file(directory, client, own, held.labels[client] < 0, LOCAL_LP)
        reached = read(directory, client, LOCAL_LP)[1].labels >= 0
        assert reached.any() == (held.labels[client] >= 0).any()
    assert summary(directory)["status"] == "completed"


def test_new_points_without_unlabeled_training_points(settings: Settings) -> None:
    options: dict[str, Any] = {"labels.new-fraction": 0.25, "xclp-predict.use-unlabeled": False}
    directory = train(settings(**QUICK, **options), 3)
    held = Held(directory)
    shown = np.concatenate(held.new) | (np.concatenate(held.labels) >= 0)
    assert not shown.all()
    found = central(held, [0, 1, 2], shown=shown)
    for client in range(3):
        new = np.isin(found[client][0], held.points[client][held.new[client]])
        assert new.sum() == 20
        assert_file(directory, client, found[client], new)


def test_a_client_that_is_left_out_is_labeled_by_the_others(
    settings: Settings, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"xclp-predict.leave-one-out": True}
    directory = train(settings(**QUICK, **options), 3)
    held = Held(directory)
    for client in range(3):
        expected = central(held, [0, 1, 2], without=[client])[client]
        everything = np.ones(80, dtype=bool)
        assert_file(directory, client, expected, everything, LEFT_OUT)
        assert_file(directory, client, central(held, [0, 1, 2])[client], held.labels[client] < 0)
    # Other labels of client 1 leave the file of client 1 as it is, and change the others'.
    with np.load(directory / "split.npz") as archive:
        arrays = dict(archive)
    own = slice(*arrays["bounds"][1:3])
    given = arrays["labels"][own]
    arrays["labels"][own] = np.where(given >= 0, (given + 1) % 10, -1)
    np.savez(tmp_path / "split.npz", **arrays)
    split = {"labels.split": str(tmp_path / "split.npz")}
    other = train(settings(**{**BARE, **options, **split}), 3)
    texts = [
        [(run / "clients" / str(c) / file_name(LEFT_OUT)).read_text() for c in range(3)]
        for run in (directory, other)
    ]
    assert [one == two for one, two in zip(*texts, strict=True)] == [False, True, False]


def test_features_and_labels_of_a_model(settings: Settings) -> None:
    trained = train(
        settings(method="labels-only", model="mlp", num_rounds=3, points_per_client=80), 3
    )
    options: dict[str, Any] = {
        **{"xclp-predict.features": "model", "start_from": str(trained), "model": "mlp"}
    }
    directory = train(settings(**QUICK, **options), 3)
    held = Held(directory)
    model = build_model("mlp", (8, 8, 1), 10)
    load_arrays(model, last_model(trained))

    def features(images: Any, points: Any) -> Any:
        return features_and_logits(model, images, points)[0]

    images = load_source("digits").train.inputs
    for client, expected in central(held, [0, 1, 2], features=features).items():
        asked = held.labels[client] < 0
        assert_file(directory, client, expected, asked)
        logits = features_and_logits(model, images, held.points[client])[1]
        of_network = (held.points[client], network_labels(logits))
        assert_file(directory, client, of_network, asked, NETWORK)
    with_pixels = {file_name(source) for source in SOURCES} - {file_name(LEFT_OUT)}
    assert {file.name for file in (directory / "clients" / "0").glob("*.csv")} == with_pixels


# Refusals


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"xclp-predict.features": "model"}, "setting-needs-setting"),
        ({"xclp-predict.use-unlabeled": False}, "setting-needs-setting"),
        ({"labels.total": 0}, "labels-missing"),
    ],
)
def test_settings_are_refused(settings: Settings, options: dict[str, Any], code: str) -> None:
    with refuses(code):
        train(settings(**{**QUICK, **options}), 2)
