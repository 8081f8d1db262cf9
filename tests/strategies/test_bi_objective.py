"""Bi-objective FedUL: degenerate cases, a plain twin, and who sees whose data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedul_flwr.data.sources import load_source
from fedul_flwr.federated.combine import mix
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.learning import batches
from tests.support.plain_loops import assert_ends_as, fresh, split_of, step
from tests.support.runs import metrics, same, summary, train
from tests.support.settings import Settings

QUICK = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "server_fraction": 0.2},
    "points_per_client": 120,
}
WIDE = {**QUICK, "precision": "float64", "batch_size": 0, "optimizer": "sgd", "learning_rate": 0.1}
METHODS = ["fedul-finetune", "fedul-mix", "server-only"]


def test_without_weight_on_the_servers_model_mixing_is_fedul(settings: Settings) -> None:
    plain = train(settings(**QUICK), 3)
    mixed = train(settings(**QUICK, method="fedul-mix", **{"fedul-mix.mixing-weight": 0.0}), 3)
    assert same(plain, mixed)


def test_with_all_weight_on_it_mixing_is_fine_tuning(settings: Settings) -> None:
    tuned = train(settings(**QUICK, method="fedul-finetune"), 3)
    mixed = train(settings(**QUICK, method="fedul-mix", **{"fedul-mix.mixing-weight": 1.0}), 3)
    assert same(tuned, mixed)


def test_a_lasting_model_with_all_weight_is_training_at_the_server_alone(
    settings: Settings,
) -> None:
    # f' begins as the global model did and never looks at what clients return.
    options = {"fedul-mix.mixing-weight": 1.0, "fedul-mix.independent": "persistent"}
    mixed = train(settings(**WIDE, method="fedul-mix", **options), 3)
    assert same(mixed, train(settings(**WIDE, method="server-only"), 3))


def test_mixing_by_hand() -> None:
    one = ArrayRecord({"w": Array(np.array([1.0, 2.0], np.float32)), "n": Array(np.array(7))})
    other = ArrayRecord({"w": Array(np.array([5.0, 0.0], np.float32)), "n": Array(np.array(15))})
    mixed = mix(one, other, 0.25)
    np.testing.assert_array_equal(mixed["w"].numpy(), [2.0, 1.5])  # .75·1 + .25·5, .75·2
    assert mixed["w"].numpy().dtype == np.float32
    assert mixed["n"].numpy() == 7  # and not 9: .75·7 + .25·15


def test_training_at_the_server_is_a_plain_loop(settings: Settings) -> None:
    config = settings(**WIDE, method="server-only", **{"server.epochs": 2})
    directory = train(config, 3)
    model, rows = fresh(config), split_of(config, 3).server
    for _ in range(4):  # two rounds of two epochs, all points in one batch
        step(model, rows, 0.1)
    assert_ends_as(directory, model)
    line = metrics(directory)[-1]
    assert (line["bytes_up"], line["bytes_down"], line["clients"]) == (0, 0, 0)
    assert line["server_loss"] > 0


# Who sees what


@pytest.mark.parametrize("method", METHODS)
def test_the_server_trains_on_its_own_points_and_clients_on_theirs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    asked: dict[bool, set[int]] = {False: set(), True: set()}
    at_server = False
    gather, train_there = batches.gather, ServerTrainer.train

    def spy(images: Any, rows: Any) -> Any:
        if images.shape[0] > 1000:  # train images; the test set is smaller
            asked[at_server] |= set(rows.tolist())
        return gather(images, rows)

    def flagged(self: ServerTrainer, *arguments: Any) -> Any:
        nonlocal at_server
        at_server = True
        try:
            return train_there(self, *arguments)
        finally:
            at_server = False

    monkeypatch.setattr(batches, "gather", spy)
    monkeypatch.setattr(ServerTrainer, "train", flagged)
    # No validation: whatever else reads training images is a client.
    config = settings(**QUICK, method=method, validation_fraction=0.0, selection="last")
    train(config, 3)
    split = split_of(config, 3)
    clients = {int(point) for client in split.clients for point in client.points}
    server = {int(point) for point in split.server}
    assert not server & clients
    assert asked[True] <= server
    assert len(asked[True]) > 0.9 * len(server)
    if method == "server-only":
        assert asked[False] == set()
    else:
        assert asked[False] <= clients
        assert len(asked[False]) > 0.9 * len(clients)


# Where the labeled set comes from


def write(folder: Path, names: int = 10) -> str:
    """Digits as a data set of its own, with ``names`` classes."""
    source, folder = load_source("digits"), folder / f"of-{names}"
    folder.mkdir()
    for split, data in (("train", source.train), ("test", source.test)):
        labels = np.asarray(data.labels) % names
        np.savez(folder / f"{split}.npz", images=np.asarray(data.inputs), labels=labels)
    return str(folder)


def test_labeled_points_from_another_data_set(settings: Settings, tmp_path: Path) -> None:
    write(tmp_path)
    options = {**QUICK, "server_fraction": 0.0, "method": "server-only"}
    # A path relative to where the run is started.
    config = settings(**options, **{"server.dataset": "of-10", "server.points": 200})
    assert config.to_flat()["server.dataset"] == str(tmp_path / "of-10")
    directory = train(config, 2)
    assert metrics(directory)[0]["server_loss"] > 0
    more = train(settings(**options, **{"server.dataset": "of-10"}), 2)
    # 1437 labeled points instead of 200.
    assert summary(more)["test_error"] < summary(directory)["test_error"]
