"""Clients of LLP-DC, LLP-PVC and FedUL with assignment: what a step trains on, and refusals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedul_flwr import learning
from fedul_flwr.baselines.fedllp import FedLLPClient
from fedul_flwr.baselines.fedllp_dc import FedLLPDCClient
from fedul_flwr.baselines.fedllp_pvc import FedLLPPVCClient
from fedul_flwr.client_apps.fedul_assign import FedULAssignClient
from fedul_flwr.data.set_priors import Dirichlet
from fedul_flwr.learning.batches import gather, to_input
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.proportions import assign_set, assign_sets, bags_of, count_loss
from fedul_flwr.learning.task import Batch, Task
from tests.support.local_tasks import fit, task_of
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients, mlp_weights

Build = Callable[..., Any]
CPU = torch.device("cpu")


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


def first_batch(task: Task) -> Batch:
    return next(task.batches(np.random.default_rng(0)))


def test_given_bags_then_a_batch_of_fedllp_has_whole_sets_and_parts(client: Build) -> None:
    options = {"method": "fedllp", "fedul.num-sets": 12, "fedllp.bag-size": 20, "batch_size": 40}
    built = client(FedLLPClient, **options)
    sizes = built.data.sets.set_sizes
    batches = list(task_of(built).batches(np.random.default_rng(0)))
    number = int(np.ceil(sizes / 20).sum()) // 2
    assert len(batches) == number
    assert built.num_steps(built.round({"server-round": 1})) == number
    for _, targets, _ in batches:
        for rows, sets in bags_of(targets):
            assert len(rows) <= 20
            m = int(sets[0])
            assert (sets == m).all()
            if sizes[m] <= 20:
                assert len(rows) == sizes[m]


def test_given_no_bags_then_the_losses_of_bags_of_whole_sets_are_the_same(client: Build) -> None:
    options = {"method": "fedllp", "fedul.num-sets": 12}
    plain = task_of(client(FedLLPClient, **options))
    big = {"fedllp.bag-size": 10_000, "batch_size": 0}
    bags = task_of(client(FedLLPClient, **options, **big))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).requires_grad_(False)
    network = Network(model, CPU, "float32")
    batches = plain.batches(np.random.default_rng(0))
    losses = [float(plain.loss(network, batch)) for batch in batches]
    whole = bags.loss(network, first_batch(bags))
    assert float(whole) == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_loss_of_pvc_is_that_of_the_true_counts(client: Build) -> None:
    built = client(FedLLPPVCClient, method="fedllp-pvc", **{"fedul.num-sets": 12})
    sets = built.data.sets
    logits = torch.randn(int(sets.set_sizes[3]), 10)
    counts = torch.from_numpy(np.rint(sets.priors[3] * sets.set_sizes[3])).long()
    assert int(counts.sum()) == len(logits)
    found = built.loss()(logits, torch.full((len(logits),), 3))
    torch.testing.assert_close(found, count_loss(logits, counts))


@pytest.mark.parametrize(
    ("bag_size", "change", "reason"),
    [
        (16, {}, "is larger than fedllp.bag-size = 16, and parts of a set have no exact counts"),
        (0, {"priors": np.full((4, 10), 0.1)}, "times its points are no whole numbers"),
        (0, {"posterior": Dirichlet.from_counts(np.ones((4, 10)))}, "class shares are uncertain"),
    ],
)
def test_pvc_refuses_sets_without_exact_counts(
    client: Build, bag_size: int, change: dict[str, Any], reason: str
) -> None:
    options = {"method": "fedllp-pvc", "fedul.num-sets": 4, "fedllp.bag-size": bag_size}
    built = client(FedLLPPVCClient, **options)
    built.data.__dict__.pop("set_check", None)
    built.data.all_sets = replace(built.data.all_sets, **change)
    found = built.data.set_check
    assert not found.accepted
    assert reason in found.reason


def test_each_set_has_its_counts_of_assigned_classes_by_the_received_model(client: Build) -> None:
    built = client(FedULAssignClient, method="fedul-assign", **{"fedul.num-sets": 12})
    fit(built, mlp_weights(), {"server-round": 5})  # some model, which is the received one below
    sets, round = built.data.sets, built.round({"server-round": 5})
    round = replace(round, plan=replace(round.plan, batch_size=0))
    logits = predict_logits(built.model, sets.inputs, sets.points)
    expected = assign_sets(logits.double().log_softmax(1).numpy(), sets.sets, sets.priors)
    ((inputs, targets, _),) = built.task(round).batches(np.random.default_rng(0))
    members, classes = targets.numpy().T
    for m, size in enumerate(sets.set_sizes):
        counts = np.bincount(classes[members == m], minlength=10)
        np.testing.assert_allclose(counts, sets.priors[m] * size, atol=1e-6)
    stored = {bytes(x.numpy()): y for x, y in zip(inputs, classes, strict=True)}
    own = to_input(gather(sets.inputs, sets.points))
    assert [stored[bytes(x.numpy())] for x in own] == expected.tolist()


def test_given_learned_priors_then_points_are_assigned_under_these(client: Build) -> None:
    options = {"fedul.num-sets": 12, "fedul.learn-priors": True}
    built = client(FedULAssignClient, method="fedul-assign", **options)
    fit(built, mlp_weights(), {"server-round": 1})
    built.state.save("learned-priors", 4, {"priors": np.full((12, 10), 0.1)})
    points = built.data.sets.points[built.data.sets.sets == 0]
    members, now = np.zeros(len(points), dtype=np.int64), built.round({"server-round": 4})
    assert np.ptp(np.bincount(built.assigned(points, members, now), minlength=10)) <= 1


def test_a_step_of_dc_is_the_proportions_and_the_assigned_classes(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "fixed_strong_view", lambda settings: lambda x: 2 * x)
    table = {"weight": 0.7, "threshold": 0.12}
    options = {f"fedllp-dc.{key}": value for key, value in table.items()}
    built = client(
        FedLLPDCClient,
        method="fedllp-dc",
        batch_size=40,
        **options,
        **{"fedul.num-sets": 12, "fedllp.bag-size": 20},
    )
    fit(built, mlp_weights(), {"server-round": 1})
    task, priors = task_of(built), built.data.sets.priors
    network = Network(built.model, CPU, "float32")
    inputs, targets, _ = first_batch(task)
    found = task.loss(network, Batch(inputs, targets))
    with torch.no_grad():
        weak, strong = network(inputs), network(2 * inputs)
    labels = torch.empty(len(inputs)).long()
    for rows, sets in bags_of(targets):
        log_p = weak[rows].double().log_softmax(1).numpy()
        labels[rows] = torch.from_numpy(assign_set(log_p, priors[int(sets[0])]))
    used = weak.softmax(1)[torch.arange(len(labels)), labels] >= 0.12
    assert 0 < used.sum() < len(used)
    each = functional.cross_entropy(strong, labels, reduction="none")
    expected = built.loss()(weak, targets) + 0.7 * (each * used).mean()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert task.read_reports()["confident-share"] == pytest.approx(float(used.float().mean()))


def test_given_weight_zero_then_assignment_is_fedul_and_dc_is_fedllp(client: Build) -> None:
    zero = {"method": "fedul-assign", "fedul-consistency.weight": 0.0}
    _, targets, _ = first_batch(task_of(client(FedULAssignClient, **zero)))
    assert targets.dim() == 1
    options = {"fedul.num-sets": 12, "fedllp.bag-size": 20}
    plain = client(FedLLPClient, method="fedllp", **options)
    none = client(FedLLPDCClient, method="fedllp-dc", **options, **{"fedllp-dc.weight": 0.0})
    for one, other in zip(
        fit(plain, mlp_weights(), {"server-round": 1})[0],
        fit(none, mlp_weights(), {"server-round": 1})[0],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
