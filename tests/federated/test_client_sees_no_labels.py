"""The labels of "unlabeled" data never reach a client: it opens no file that has them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.baselines.supervised import SupervisedClient
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.split import generate_sets
from fedul_flwr.data.types import UnlabeledSets
from fedul_flwr.federated.client_data import PartlyLabeledData
from tests.support.given_labels_method import GIVEN, GIVEN_METHOD
from tests.support.label_audit import (
    AUDITED,
    PARTLY_LABELED,
    UNLABELED,
    Build,
    build_federation,
    files_opened,
    names_below,
)
from tests.support.local_tasks import fit, points_of, training_points


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "federation" / "cache"))
    return partial(build_federation, tmp_path / "federation")


@pytest.mark.parametrize("method", UNLABELED)
def test_no_method_on_unlabeled_sets_opens_a_file_with_labels(
    federation: Build, method: str
) -> None:
    # The second round of FedPL takes its labels from the model.
    of_fedpl = {"fedpl.warm-up-rounds": 1, "fedpl.relabel": True} if method == "fedpl" else {}
    run, kind = federation(method=method, **of_fedpl), UNLABELED[method]
    with files_opened() as paths:
        run.prepare(kind=kind)
        for server_round in (1, 2):
            fit(run.client(kind=kind), run.parameters(), {"server-round": server_round})
    assert names_below(paths, run.root) == {"train_inputs.npy", "sets.npz"}


@pytest.mark.parametrize("method", PARTLY_LABELED)
def test_clients_of_partly_labeled_points_use_the_given_labels_and_open_no_file_with_all(
    federation: Build, method: str
) -> None:
    run, kind = federation(method=method), PARTLY_LABELED[method]
    with files_opened() as paths:
        before = run.rounds(kind)
    assert names_below(paths, run.root) == {"train_inputs.npy", "given.npz"}
    if method != "semifl":  # its clients have no labels
        run.change_given()
        assert not equal(before, run.rounds(kind))


@pytest.mark.parametrize("method", ["fedmatch", "uda", "fixmatch"])
def test_with_labels_at_the_server_clients_have_none(federation: Build, method: str) -> None:
    at_server = {"scenario.labels-at": "server", "server-fraction": 0.1}
    run, kind = federation(method=method, **at_server), PARTLY_LABELED[method]
    with files_opened() as paths:
        run.rounds(kind)
        client = run.client(kind=kind)
        assert isinstance(client.data, PartlyLabeledData)
        assert client.register()["num-labeled"] == 0
        now = client.round({"server-round": 1})
        data = points_of(client.data.labeled_and_unlabeled(now))
    assert len(data.points) == len(client.data.examples.points)
    assert (data.targets == -1).all()
    opened = {file for file in map(Path, paths) if file.is_relative_to(run.root)}
    assert {file.name for file in opened} == {"train_inputs.npy", "given.npz"}
    with np.load(run.split / "given.npz") as given, np.load(run.split / "truth.npz") as truth:
        assert (given["labels"] == -1).all()
        # Nor has a client one of the server's points.
        assert len(truth["server"]) == 30
        assert not np.isin(given["points"], truth["server"]).any()


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (METHODS["closed-form"].client_class, {"train_inputs.npy", "sets.npz"}),
        (METHODS["closed-form-labels"].client_class, {"train_inputs.npy", "given.npz"}),
    ],
)
def test_sums_for_a_head_open_no_file_with_all_labels(
    federation: Build, kind: Any, files: set[str]
) -> None:
    method = next(name for name, one in METHODS.items() if one.client_class is kind)
    run = federation(method=method)
    with files_opened() as paths:
        run.prepare(kind=kind)
        assert run.client(kind=kind).point_shares().stated.any()
    assert names_below(paths, run.root) == files


def test_the_clients_of_all_methods_but_supervised_are_audited() -> None:
    audited_here = [method for method in METHODS.values() if method.data != "labels"]
    clients = {method.client_class for method in audited_here if method.updates}
    clients -= {METHODS["server-only"].client_class}  # the bare base class, which trains nothing
    audited = {GIVEN_METHOD: GIVEN, **METHODS}
    assert clients | {GIVEN.client_class} == {*AUDITED.values()}
    assert all(audited[name].client_class is kind for name, kind in AUDITED.items())


def test_the_audit_notices_labels_that_are_read(federation: Build) -> None:
    run = federation(method="supervised")
    run.prepare(kind=SupervisedClient)
    with files_opened() as paths:
        run.fit(kind=SupervisedClient)
    assert "labels.npz" in names_below(paths, run.root)
    assert "truth.npz" not in names_below(paths, run.root)  # the server's part is in there
    with files_opened() as paths:
        np.load(run.source / "train_labels.npy", mmap_mode="r")
    assert names_below(paths, run.root) == {"train_labels.npy"}


def equal(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("overlap", ["disjoint", "shared"])
def test_held_out_points_are_trained_on_in_no_set(federation: Build, overlap: str) -> None:
    options = {"fedul.overlap": overlap, "fedul.heldout-fraction": 0.5, "fedul.num-sets": 12}
    run = federation(selection="heldout", **options)
    run.prepare()
    client = run.client()
    assert isinstance(client, FedULClient)
    sets, apart = client.data.all_sets, client.data.held_out.points
    data = training_points(client)
    assert len(apart) > 20
    assert not np.isin(data.points, apart).any()
    if overlap == "disjoint":
        assert len(data.points) + len(apart) == len(sets.points)
        assert len(apart) == len(sets.points) // 2
    else:
        assert len(np.unique(sets.points)) < len(sets.points)
    again = run.client()
    assert isinstance(again, FedULClient)
    np.testing.assert_array_equal(again.data.held_out.points, apart)


def test_holding_out_keeps_the_class_priors_of_shared_sets(federation: Build) -> None:
    run = federation(selection="heldout")
    run.prepare()
    client = run.client()
    assert isinstance(client, FedULClient)
    # Client 0 of the paper's Non-IID benchmark (table D.5), M = 10, one tenth held out.
    labels = np.repeat(np.arange(10), [4498, 4646, 56, 56, 54, 57, 54, 60, 60, 54])
    table = UnlabeledSetSettings.parse({"overlap": "shared"})
    made = generate_sets(labels, np.arange(len(labels)), 10, 0, table, seed=0)
    images = np.zeros((len(labels), 1, 1, 1), dtype=np.uint8)
    client.data.__dict__["all_sets"] = UnlabeledSets(images, made.points, made.sets, made.priors)
    data = training_points(client)
    for m in range(10):
        left = np.bincount(labels[data.points[data.targets == m]], minlength=10)
        # Sets of 250 points and more: leaving out a tenth moves a share by 0.01 (one deviation).
        np.testing.assert_allclose(left / left.sum(), made.priors[m], atol=0.05)


def test_no_set_is_held_out_whole(federation: Build) -> None:
    # 40 sets of about four points, half of the points held out: some set would lose all.
    run = federation(selection="heldout", **{"fedul.num-sets": 40, "fedul.heldout-fraction": 0.5})
    run.prepare()
    client = run.client()
    assert isinstance(client, FedULClient)
    left = np.bincount(training_points(client).targets, minlength=40)
    every = client.data.all_sets
    assert (left[every.set_sizes > 0] > 0).all()
    assert 0.3 < len(client.data.held_out.points) / len(every.points) < 0.5
