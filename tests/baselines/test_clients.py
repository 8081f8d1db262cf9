"""What clients train on: which points, with which targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from flwr.app import RecordDict

from baselines.fedllp import FedLLPClient
from baselines.fedpl import FedPLClient
from baselines.supervised import SupervisedClient
from client_apps.local import LocalTrainingClient
from fedul_flwr.client_state import ClientState
from fedul_flwr.config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split, client_files
from fedul_flwr.federation import DataShape, introduction
from fedul_flwr.learning.local import dump_arrays, load_arrays, predict_logits
from fedul_flwr.models import build_model
from fedul_flwr.node_config import NodeConfig

C = TypeVar("C", bound=LocalTrainingClient)
Build = Callable[..., Any]


@pytest.fixture
def client(settings: Callable[..., RunConfig]) -> Build:
    """``client(kind, number, **settings)``: one of three simulated clients, prepared."""

    def build(kind: type[C], number: int = 0, **options: Any) -> C:
        config = settings(model="mlp", local_epochs=1, **options)
        place, source = source_directory("digits"), load_source("digits")
        split = build_split(place, 3, config)
        data = "labels" if kind is SupervisedClient else "unlabeled-sets"
        files = client_files(place, split.directory, data)
        shape = DataShape(source.image_shape, source.class_names)
        built = kind(
            config, NodeConfig(partition_id=number, num_partitions=3), ClientState(RecordDict())
        )
        built.step("prepare", introduction(config, shape, files))
        return built

    return build


def weights(seed: int = 0) -> list[Any]:
    return list(dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=seed)).values())


def test_supervised_without_a_fraction_has_all_points_in_order(client: Build) -> None:
    whole = client(SupervisedClient, method="supervised").training_data()
    explicit = client(
        SupervisedClient, method="supervised", **{"supervised.label-fraction": 1.0}
    ).training_data()
    np.testing.assert_array_equal(whole.points, explicit.points)
    np.testing.assert_array_equal(whole.points, np.unique(whole.points))
    labels = np.asarray(load_source("digits").train.labels)
    np.testing.assert_array_equal(whole.targets, labels[whole.points])


@pytest.mark.parametrize(("fraction", "divisor"), [(0.5, 2), (0.1, 10), (1e-9, None)])
def test_a_fraction_is_of_the_clients_points_and_at_least_one(
    client: Build, fraction: float, divisor: int | None
) -> None:
    options = {"method": "supervised", "supervised.label-fraction": fraction}
    whole = client(SupervisedClient, method="supervised").training_data()
    part = client(SupervisedClient, **options)
    data = part.training_data()
    expected = round(len(whole.points) / divisor) if divisor else 1
    assert len(data.points) == expected
    assert part.introduce() == {"num-points": expected}
    assert part.fit(weights(), {"server-round": 1})[1] == expected
    known = dict(zip(whole.points, whole.targets, strict=True))
    assert [known[point] for point in data.points] == data.targets.tolist()


def test_a_fraction_is_random_but_the_same_in_every_process(client: Build) -> None:
    def points(fraction: float, number: int = 0, seed: int = 0) -> set[int]:
        options = {"supervised.label-fraction": fraction, "seed": seed}
        built = client(SupervisedClient, number, method="supervised", **options)
        return set(built.training_data().points.tolist())

    tenth = points(0.1)
    assert tenth == points(0.1)
    assert tenth < points(0.3)
    everything = sorted(points(1.0))
    assert tenth != set(everything[: len(tenth)])
    assert tenth != points(0.1, seed=1)


def test_pseudo_labels_of_a_client_are_its_sets_likeliest_classes(client: Build) -> None:
    built = client(FedPLClient, method="fedpl")
    data = built.training_data()
    np.testing.assert_array_equal(data.points, built.sets.points)
    expected = built.sets.priors.argmax(axis=1)[built.sets.sets]
    np.testing.assert_array_equal(data.targets, expected)


@pytest.mark.parametrize(("server_round", "of_the_model"), [(1, False), (2, True)])
def test_relabeled_points_have_the_global_models_classes(
    client: Build, server_round: int, of_the_model: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"fedpl.relabel": True, "fedpl.warm-up-rounds": 1}
    built = client(FedPLClient, method="fedpl", **options)
    taken: list[Any] = []
    plain = FedPLClient.training_data

    def watch(self: FedPLClient) -> Any:
        taken.append(plain(self))
        return taken[-1]

    monkeypatch.setattr(FedPLClient, "training_data", watch)
    built.fit(weights(3), {"server-round": server_round})
    sets = built.sets
    load_arrays(built.model, dict(zip(built.array_names(), weights(3), strict=True)))
    predicted = predict_logits(built.model, sets.images, sets.points).argmax(dim=1).numpy()
    fixed = sets.priors.argmax(axis=1)[sets.sets]
    np.testing.assert_array_equal(taken[0].targets, predicted if of_the_model else fixed)
    assert not np.array_equal(predicted, fixed)


def test_batches_of_fedllp_are_the_clients_sets(client: Build) -> None:
    built = client(FedLLPClient, method="fedllp", batch_size=4)
    batches = list(built.batches(built.training_data(), built.plan({}))(np.random.default_rng(0)))
    assert sorted(int(targets[0]) for _, targets in batches) == list(range(10))
    sizes = {int(targets[0]): len(targets) for _, targets in batches}
    assert [sizes[m] for m in range(10)] == built.sets.set_sizes.tolist()
