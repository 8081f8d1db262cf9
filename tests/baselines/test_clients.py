"""What clients train on: which points, with which targets."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr import learning
from fedul_flwr.baselines import fedllp
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPVATClient
from fedul_flwr.baselines.fedpl import FedPLClient
from fedul_flwr.baselines.supervised import SupervisedClient
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.task import Batch
from tests.support.local_tasks import fit, task_of, training_points
from tests.support.owner_files import CLASSES, write_points, write_sets
from tests.support.refusals import refuses
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients, mlp_weights

Build = Callable[..., Any]


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


@pytest.mark.parametrize(("fraction", "divisor"), [(0.5, 2), (0.1, 10), (1e-9, None)])
def test_a_fraction_is_of_the_clients_points_and_at_least_one(
    client: Build, fraction: float, divisor: int | None
) -> None:
    options = {"method": "supervised", "supervised.label-fraction": fraction}
    whole = training_points(client(SupervisedClient, method="supervised"))
    part = client(SupervisedClient, **options)
    data = training_points(part)
    expected = round(len(whole.points) / divisor) if divisor else 1
    assert len(data.points) == expected
    assert part.register() == {"num-points": expected}
    assert fit(part, mlp_weights(), {"server-round": 1})[1] == expected
    known = dict(zip(whole.points, whole.targets, strict=True))
    assert [known[point] for point in data.points] == data.targets.tolist()


def test_pseudo_labels_by_the_drawn_priors_are_m_modulo_k(client: Build) -> None:
    # Two classes a client: the priors it is told lead in those two alone.
    options = {"partition": "majority", "fedul.num-sets": 13, "fedpl.recipe": "release"}
    built = client(FedPLClient, method="fedpl", **options)
    sets = built.data.sets
    np.testing.assert_array_equal(training_points(built).targets, sets.sets % 10)
    told = client(FedPLClient, method="fedpl", **{**options, "fedpl.recipe": "paper"})
    targets = training_points(told).targets
    np.testing.assert_array_equal(targets, sets.priors.argmax(axis=1)[sets.sets])
    assert np.count_nonzero(sets.priors.argmax(axis=1) != np.arange(13) % 10) > 13 / 2


@pytest.mark.parametrize(("scale", "mixes"), [(1.0, False), (1000.0, True)])
def test_given_adaptive_then_warm_up_ends_when_half_of_the_points_are_confident(
    client: Build, scale: float, mixes: bool
) -> None:
    # A new model has flat probabilities; with weights a thousand times as large it is sure.
    built = client(FedPLClient, method="fedpl")
    with torch.no_grad():
        for weight in built.model.parameters():
            weight.mul_(scale)
    for server_round in (1, 20):
        task = task_of(built, server_round)
        assert hasattr(task.loss, "relabel") is mixes
        if not mixes:
            assert task.read_reports() == {"confident-share": 0.0}


def test_given_no_confident_point_then_fedpl_trains_on_its_sets_classes(client: Build) -> None:
    start = [array.copy() for array in mlp_weights()]
    built = client(FedPLClient, method="fedpl", l1=0.0)
    arrays, _, metrics = fit(built, mlp_weights(), {"server-round": 20})
    assert metrics["loss"] > 0
    assert any((array != before).any() for array, before in zip(arrays, start, strict=True))
    paper = client(FedPLClient, method="fedpl", l1=0.0, **{"fedpl.warm-up-rounds": 5})
    arrays, _, metrics = fit(paper, mlp_weights(), {"server-round": 20})
    assert (metrics["loss"], metrics["confident-share"]) == (0.0, 0.0)
    assert all((array == before).all() for array, before in zip(arrays, start, strict=True))


def steps_of(built: Any) -> int:
    return int(fit(built, mlp_weights(), {"server-round": 1})[2]["steps"])


@pytest.mark.parametrize("overlap", ["disjoint", "shared"])
@pytest.mark.parametrize("batch_size", [8, 32, 0])
def test_a_tenth_of_the_labels_makes_as_many_steps_as_fedul_where_so_asked(
    client: Build, overlap: str, batch_size: int
) -> None:
    options = {"batch_size": batch_size, "fedul.overlap": overlap, "partition": "majority"}
    tenth = {"supervised.label-fraction": 0.1, "method": "supervised"}
    of_fedul = [steps_of(client(FedULClient, c, method="fedul", **options)) for c in range(3)]
    as_many, fewer = (
        [steps_of(client(SupervisedClient, c, **options, **tenth, **more)) for c in range(3)]
        for more in ({"supervised.steps": "sets"}, {})
    )
    assert as_many == of_fedul
    assert (fewer == of_fedul) == (batch_size == 0)


@pytest.mark.parametrize(
    ("kind", "options", "write"),
    [
        (FedPLClient, {"method": "fedpl", "fedpl.recipe": "release"}, write_sets),
        (SupervisedClient, {"method": "supervised", "supervised.steps": "sets"}, write_points),
    ],
)
def test_what_only_a_simulation_knows_is_refused_on_an_owners_device(
    client: Build, tmp_path: Path, kind: type[Any], options: dict[str, Any], write: Any
) -> None:
    built, folder = client(kind, **options), write(tmp_path / "ward")
    built.node = NodeConfig(partition_id=0, num_partitions=3, data=str(folder))
    built.__dict__.pop("data", None)  # of the simulation that it was prepared for
    shape = DataShape((8, 8, 1), CLASSES)
    with refuses("setting-for-simulations"):
        built.on_phase("setup", setup_content(built.settings, shape, {}))


@pytest.mark.parametrize(
    ("number", "weight"),
    [(2, 0.5 * math.exp(-1.25)), (4, 0.5)],  # halfway: exp(-5·(1/2)²)
)
def test_the_adversarial_loss_has_its_weight_of_the_round(
    client: Build, monkeypatch: pytest.MonkeyPatch, number: int, weight: float
) -> None:
    options = {"fedul.num-sets": 4, "fedllp-vat.alpha": 0.5}
    monkeypatch.setattr(fedllp, "RAMP_UP_ROUNDS", 4)
    built = client(FedLLPVATClient, method="fedllp-vat", **options)
    monkeypatch.setattr(learning, "virtual_adversarial_loss", lambda *_, **__: torch.tensor(3.0))
    network = Network(built.model.eval(), torch.device("cpu"), "float32")
    inputs, sets = torch.zeros(2, 1, 8, 8), torch.tensor([1, 1])
    now = built.round({"server-round": number})
    plain = FedLLPClient.task(built, now).loss(network, Batch(inputs, sets))
    found = built.task(now).loss(network, Batch(inputs, sets))
    assert float((found - plain).detach()) == pytest.approx(3 * weight, rel=1e-5)


@pytest.mark.parametrize(("channels", "unit"), [(1, 0.6162), (3, 0.4018)])
def test_given_the_released_recipe_then_the_ramp_begins_anew_each_epoch_and_the_radius_is_smaller(
    client: Build, monkeypatch: pytest.MonkeyPatch, channels: int, unit: float
) -> None:
    """Alpha·exp(-5·(1 − s/20M)²) in step s of an epoch of M, whatever the round is."""
    options = {"fedul.num-sets": 4, "fedllp-vat.alpha": 0.5, "fedllp-vat.radius": 6.0}
    built = client(
        FedLLPVATClient, method="fedllp-vat", **options, **{"fedllp-vat.recipe": "release"}
    )
    radii: list[float] = []

    def watch(*_: Any, radius: float, xi: float) -> torch.Tensor:
        radii.append(radius)
        return torch.tensor(3.0)

    monkeypatch.setattr(learning, "virtual_adversarial_loss", watch)
    model = nn.Sequential(nn.Flatten(), nn.Linear(channels * 64, 10)).eval()
    network = Network(model, torch.device("cpu"), "float32")
    inputs, sets = torch.zeros(2, channels, 8, 8), torch.tensor([1, 1])
    for number in (1, 90):
        now = built.round({"server-round": number})
        plain = FedLLPClient.task(built, now).loss(network, Batch(inputs, sets))
        objective = built.task(now).loss
        for step in (0, 1, 2, 3, 0, 1):
            weight = 0.5 * math.exp(-5 * (1 - step / 80) ** 2)
            found = float((objective(network, Batch(inputs, sets)) - plain).detach())
            assert found == pytest.approx(3 * weight, rel=1e-4)
            assert 0.0067 * 0.5 < weight < 0.011 * 0.5
    assert radii == pytest.approx([6.0 * unit] * 12)
