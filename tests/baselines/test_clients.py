"""What clients train on: which points, with which targets."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fedul_flwr.baselines import fedllp
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPVATClient
from fedul_flwr.baselines.fedpl import FedPLClient
from fedul_flwr.baselines.supervised import SupervisedClient
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.client_apps.fedul_consistency import (
    DISCLOSURES as CONSISTENCY_DISCLOSURES,
)
from fedul_flwr.client_apps.fedul_consistency import FedULConsistencyClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split, client_files
from fedul_flwr.errors import UserError
from fedul_flwr.federated import local_training
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.learning import device, dropout, set_priors
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.local import dump_arrays, load_arrays, predict_logits
from fedul_flwr.learning.network import Network
from fedul_flwr.models import build_model
from tests.support.local_tasks import task_of, training_points
from tests.support.owner_files import CLASSES, write_points, write_sets

C = TypeVar("C", bound=MethodClient)
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
        shape = DataShape(source.input_shape, source.class_names)
        built = kind(
            config, NodeConfig(partition_id=number, num_partitions=3), ClientState(RecordDict())
        )
        built.on_phase("setup", setup_content(config, shape, files))
        return built

    return build


def weights(seed: int = 0) -> list[Any]:
    return list(dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=seed)).values())


def test_supervised_without_a_fraction_has_all_points_in_order(client: Build) -> None:
    whole = training_points(client(SupervisedClient, method="supervised"))
    options = {"method": "supervised", "supervised.label-fraction": 1.0}
    explicit = training_points(client(SupervisedClient, **options))
    np.testing.assert_array_equal(whole.points, explicit.points)
    np.testing.assert_array_equal(whole.points, np.unique(whole.points))
    labels = np.asarray(load_source("digits").train.labels)
    np.testing.assert_array_equal(whole.targets, labels[whole.points])


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
    assert part.fit(weights(), {"server-round": 1})[1] == expected
    known = dict(zip(whole.points, whole.targets, strict=True))
    assert [known[point] for point in data.points] == data.targets.tolist()


def test_a_fraction_is_random_but_the_same_in_every_process(client: Build) -> None:
    def points(fraction: float, number: int = 0, seed: int = 0) -> set[int]:
        options = {"supervised.label-fraction": fraction, "seed": seed}
        built = client(SupervisedClient, number, method="supervised", **options)
        return set(training_points(built).points.tolist())

    tenth = points(0.1)
    assert tenth == points(0.1)
    assert tenth < points(0.3)
    everything = sorted(points(1.0))
    assert tenth != set(everything[: len(tenth)])
    assert tenth != points(0.1, seed=1)


def test_pseudo_labels_of_a_client_are_its_sets_likeliest_classes(client: Build) -> None:
    built = client(FedPLClient, method="fedpl")
    data = training_points(built)
    np.testing.assert_array_equal(data.points, built.data.sets.points)
    expected = built.data.sets.priors.argmax(axis=1)[built.data.sets.sets]
    np.testing.assert_array_equal(data.targets, expected)


def test_pseudo_labels_by_the_drawn_priors_are_m_modulo_k(client: Build) -> None:
    # Two classes a client: the priors it is told lead in those two alone.
    options = {"partition": "majority", "fedul.num-sets": 13, "fedpl.labels": "drawn"}
    built = client(FedPLClient, method="fedpl", **options)
    sets = built.data.sets
    np.testing.assert_array_equal(training_points(built).targets, sets.sets % 10)
    told = client(FedPLClient, method="fedpl", **{**options, "fedpl.labels": "realized"})
    targets = training_points(told).targets
    np.testing.assert_array_equal(targets, sets.priors.argmax(axis=1)[sets.sets])
    assert np.count_nonzero(sets.priors.argmax(axis=1) != np.arange(13) % 10) > 13 / 2


@pytest.mark.parametrize(("server_round", "relabel"), [(1, False), (2, True)])
def test_points_are_relabeled_after_the_warm_up(
    client: Build, server_round: int, relabel: bool
) -> None:
    options = {"fedpl.relabel": True, "fedpl.warm-up-rounds": 1}
    built = client(FedPLClient, method="fedpl", **options)
    assert getattr(task_of(built, server_round).objective, "relabel", False) is relabel


def steps_of(built: Any) -> int:
    return int(built.fit(weights(), {"server-round": 1})[2]["steps"])


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


def test_more_steps_are_on_the_same_labeled_points(client: Build) -> None:
    options = {"method": "supervised", "supervised.label-fraction": 0.1}
    built = client(SupervisedClient, **options, **{"supervised.steps": "sets"}, batch_size=8)
    data = training_points(built)
    plain = training_points(client(SupervisedClient, **options))
    np.testing.assert_array_equal(data.points, plain.points)
    batches = list(task_of(built).batches(np.random.default_rng(0)))
    targets = np.concatenate([targets.numpy() for _, targets in batches])
    assert len(targets) > 5 * len(data.points)
    assert set(targets) == set(data.targets)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (FedPLClient, {"method": "fedpl", "fedpl.labels": "drawn"}, "nobody drew the class priors"),
        (
            SupervisedClient,
            {"method": "supervised", "supervised.steps": "sets"},
            "an owner of labeled points has no unlabeled sets",
        ),
    ],
)
def test_what_only_a_simulation_knows_is_refused_on_an_owners_device(
    client: Build, tmp_path: Path, kind: type[Any], options: dict[str, Any], message: str
) -> None:
    built = client(kind, **options)
    folder = tmp_path / "ward"
    if kind is FedPLClient:
        write_sets(folder)
    else:
        write_points(folder)
    built.node = NodeConfig(partition_id=0, num_partitions=3, data=str(folder))
    built.__dict__.pop("data", None)  # of the simulation that it was prepared for
    shape = DataShape((8, 8, 1), CLASSES)
    with pytest.raises(UserError, match=message):
        built.on_phase("setup", setup_content(built.settings, shape, {}))


@pytest.mark.parametrize("kind", [FedLLPClient, FedLLPVATClient])
@pytest.mark.parametrize("server_round", [0, 3])
def test_a_step_of_fedllp_has_the_dropout_that_is_set(
    client: Build, monkeypatch: pytest.MonkeyPatch, kind: type[Any], server_round: int
) -> None:
    asked: list[float] = []
    plain = dropout.layer_dropout

    def watch(model: Any, probability: float) -> Any:
        asked.append(probability)
        return plain(model, probability)

    monkeypatch.setattr(dropout, "layer_dropout", watch)
    method = "fedllp" if kind is FedLLPClient else "fedllp-vat"
    # In round 0 of a ramp the weight of the adversarial loss is exp(-5), in round 3 more.
    options = {"method": method, "fedul.num-sets": 4}
    client(kind, **options).fit(weights(), {"server-round": server_round + 1})
    assert asked == []
    client(kind, **options, **{"fedllp.dropout": 0.2}).fit(
        weights(), {"server-round": server_round + 1}
    )
    assert asked == [0.2] * 4  # one step a set


@pytest.mark.parametrize(
    ("alpha", "number", "ramp", "weight"),
    [
        (0.5, 2, 4, 0.5 * math.exp(-1.25)),  # halfway: exp(-5·(1/2)²)
        (0.5, 4, 4, 0.5),
        (1.0, 1, 0, 1.0),
        (0.0, 1, 0, 0.0),
    ],
)
def test_the_adversarial_loss_has_its_weight_of_the_round(
    client: Build,
    monkeypatch: pytest.MonkeyPatch,
    alpha: float,
    number: int,
    ramp: int,
    weight: float,
) -> None:
    options = {"fedul.num-sets": 4, "fedllp-vat.alpha": alpha, "fedllp-vat.ramp-up-rounds": ramp}
    built = client(FedLLPVATClient, method="fedllp-vat", **options)
    monkeypatch.setattr(fedllp, "virtual_adversarial_loss", lambda *_, **__: torch.tensor(3.0))
    network = Network(built.model.eval(), torch.device("cpu"), "float32")
    inputs, sets = torch.zeros(2, 1, 8, 8), torch.tensor([1, 1])
    now = built.round({"server-round": number})
    plain = FedLLPClient.task(built, now).objective(network, inputs, sets)
    found = built.task(now).objective(network, inputs, sets)
    assert float((found - plain).detach()) == pytest.approx(3 * weight, rel=1e-5)


def test_consistency_trains_for_the_class_priors_that_the_server_sends(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"method": "fedul-consistency", "test_prior": "sets", "fedul.num-sets": 12}
    built = client(FedULConsistencyClient, **options)
    asked, plain = [], built.loss
    monkeypatch.setattr(built, "loss", lambda config: asked.append(config) or plain(config))
    told = {"server-round": 1, "test-prior": [0.1] * 10}
    built.task(built.round(told))
    assert asked == [told, told]  # for the weak view, and for what the strong one is compared with


def test_the_heldout_loss_is_that_of_the_points_that_were_held_out(client: Build) -> None:
    options = {"validation_fraction": 0.0, "selection": "heldout", "fedul.num-sets": 12}
    built = client(FedULClient, method="fedul", **options)
    sets, held = built.data.sets, built.held_out
    start = weights(3)
    load_arrays(built.model, dict(zip(built.array_names(), start, strict=True)))
    logits = predict_logits(built.model, sets.inputs, sets.points).double().numpy()

    def loss(entries: Any) -> float:
        """Mean of −log of (n_m Pi_m · eta)_m over its sum: eq. 9 with a uniform test prior."""
        eta = np.exp(logits[entries]) / np.exp(logits[entries]).sum(axis=1, keepdims=True)
        sizes = np.bincount(sets.sets[~held], minlength=12)  # of what is trained on
        scores = (eta @ sets.priors.T) * sizes
        chosen = scores[np.arange(len(scores)), sets.sets[entries]] / scores.sum(axis=1)
        return float(-np.log(chosen).mean())

    found, count, _ = built.evaluate(start, {"server-round": 1})
    assert count == held.sum()
    assert found == pytest.approx(loss(held), rel=1e-5)
    assert found != pytest.approx(loss(~held), rel=1e-3)
    assert found != pytest.approx(loss(np.ones(len(held), dtype=bool)), rel=1e-3)


def test_the_points_that_are_held_out_are_drawn_by_the_runs_seed(client: Build) -> None:
    options = {"validation_fraction": 0.0, "selection": "heldout", "fedul.heldout-fraction": 0.3}
    built = client(FedULClient, 2, method="fedul", seed=5, **options)
    sets = built.data.sets
    order = stream(5, "held-out", 2).permutation(np.unique(sets.points))  # of client 2
    expected = np.isin(sets.points, order[: int(0.3 * len(order))])
    np.testing.assert_array_equal(built.held_out, expected)


def test_the_heldout_loss_is_computed_in_the_precision_of_the_run(client: Build) -> None:
    options = {"validation_fraction": 0.0, "selection": "heldout", "precision": "float64"}
    built = client(FedULClient, method="fedul", **options)
    sets, held, start = built.data.sets, built.held_out, weights(3)
    found, _, _ = built.evaluate(start, {"server-round": 1})
    model = copy.deepcopy(built.model).double()
    with torch.no_grad():
        logits = model(to_input(torch.from_numpy(sets.inputs[sets.points[held]])).double())
        expected = built.loss({"server-round": 1})(logits, torch.from_numpy(sets.sets[held]))
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_given_one_round_then_no_priors_are_checked(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = client(FedULClient, method="fedul", num_rounds=1)
    monkeypatch.setattr(set_priors, "set_likelihoods", lambda *_: pytest.fail("it has looked"))
    task_of(built, 1)


def test_given_exact_priors_then_they_are_checked_against_themselves(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    check = set_priors.check_fit
    monkeypatch.setattr(
        set_priors, "check_fit", lambda *given: told.append(given[2]) or check(*given)
    )
    likelihoods, priors = set_priors.set_likelihoods, []
    monkeypatch.setattr(
        set_priors,
        "set_likelihoods",
        lambda *given: priors.append(given[1]) or likelihoods(*given),
    )
    prior = [0.19, *[0.09] * 9]
    built = client(FedULClient, method="fedul", num_rounds=3, test_prior=",".join(map(str, prior)))
    task_of(built, 2)
    assert told == []
    task_of(built, 3)
    np.testing.assert_array_equal(told[0].means, built.data.sets.priors)
    (used,) = priors
    np.testing.assert_allclose(used, prior)


def test_given_priors_of_later_rounds_then_a_round_takes_those_before_it(
    client: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was cut off after round 4 begins round 3 again: files of round 4 are there."""
    built = client(FedULClient, method="fedul", **{"fedul.learn-priors": True})
    built.state = ClientState(RecordDict(), tmp_path)
    for number in (2, 3, 4):
        built.state.save("learned-priors", number, {"priors": np.full((10, 10), float(number))})
    assert [float(built._learned(number)[0, 0]) for number in (2, 3, 5)] == [2.0, 3.0, 4.0]
    np.testing.assert_array_equal(built._learned(1), built.data.sets.priors)
    begun: list[float] = []
    monkeypatch.setattr(
        set_priors, "learn_priors", lambda *given: begun.append(given[2][0, 0]) or given[2]
    )
    task_of(built, 20)
    built.state.save("learned-priors", 21, {"priors": np.full((10, 10), 9.0)})
    task_of(built, 20)
    assert begun == [4.0, 4.0]


@pytest.mark.parametrize(
    ("target", "number", "weight"),
    [
        ("posterior", 2, 0.6 * math.exp(-1.25)),  # halfway: exp(-5·(1/2)²)
        ("set-posterior", 4, 0.6),
    ],
)
def test_the_consistency_loss_is_as_the_settings_say(
    client: Build, target: str, number: int, weight: float
) -> None:
    options = {"weight": 0.6, "ramp-up-rounds": 4, "target": target, "threshold": 0.5}
    table = {f"fedul-consistency.{key}": value for key, value in options.items()}
    built = client(FedULConsistencyClient, method="fedul-consistency", noise=0.25, **table)
    found = task_of(built, number).objective
    assert found.weight == pytest.approx(weight)
    assert found.threshold == 0.5
    if target == "posterior":
        assert found.log_weights is None
    else:  # of 12 sets or as many as there are, and 10 classes
        assert found.log_weights.shape == built.data.sets.priors.shape
    # Vectors get the noise of the settings: the fixed strong view is for images alone.
    assert (found.strong_view(torch.ones(4, 6)) != 1).any()


def test_the_consistency_loss_is_declared_where_it_has_a_weight(
    settings: Callable[..., RunConfig],
) -> None:
    def names(weight: float) -> set[str]:
        config = settings(method="fedul-consistency", **{"fedul-consistency.weight": weight})
        found = [entry for entry in CONSISTENCY_DISCLOSURES if entry.when(config)]
        return {name for entry in found for name in entry.names}

    assert names(0.0) == names(0.1) - {"consistency-loss", "masked-share"}
    assert "masked-share" in names(0.1)


def test_a_clients_model_has_the_options_and_threads_of_the_run(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(device, "set_threads", threads.append)
    built = client(FedULClient, method="fedul", client_threads=3, model_width=7, model_layers=4)
    expected = build_model("mlp", (8, 8, 1), 10, options=built.settings.model_options)
    shapes = {name: array.shape for name, array in expected.state_dict().items()}
    assert {n: a.shape for n, a in built.model.state_dict().items()} == shapes
    assert len(shapes) == 10  # five layers
    assert threads == [3]


def test_the_prior_that_the_server_found_is_that_of_the_loss(client: Build) -> None:
    """Eq. 9: p(m | x) ∝ n_m Σ_k Pi_mk eta_k / pi_k."""
    options = {"validation_fraction": 0.0, "selection": "heldout", "test_prior": "sets"}
    built = client(FedULClient, method="fedul", **options)
    sets, held, start = built.data.sets, built.held_out, weights(3)
    pi = np.array([0.19, *[0.09] * 9])
    found, _, _ = built.evaluate(start, {"server-round": 1, "test-prior": pi.tolist()})
    load_arrays(built.model, dict(zip(built.array_names(), start, strict=True)))
    logits = predict_logits(built.model, sets.inputs, sets.points[held]).double().numpy()
    eta = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = ((eta / pi) @ sets.priors.T) * np.bincount(sets.sets[~held], minlength=10)
    chosen = scores[np.arange(len(scores)), sets.sets[held]] / scores.sum(axis=1)
    assert found == pytest.approx(float(-np.log(chosen).mean()), rel=1e-5)
    # And in training: without a step the mean loss is that of all points at the start.
    rate = {"server-round": 1, "test-prior": pi.tolist(), "rate-factor": 0.0}
    losses = [
        client(FedULClient, method="fedul", **{**options, **more}, batch_size=0).fit(
            weights(3), told
        )[2]["loss"]
        for more, told in (({}, rate), ({"test_prior": ",".join(map(str, pi))}, rate))
    ]
    assert losses[0] == losses[1]
    plain = client(
        FedULClient, method="fedul", **{**options, "test_prior": "uniform"}, batch_size=0
    )
    assert plain.fit(weights(3), {"server-round": 1})[2]["loss"] != losses[0]


def test_a_client_that_cannot_take_part_tells_no_class_masses(client: Build) -> None:
    def told(**options: Any) -> dict[str, Any]:
        values: dict[str, Any] = client(FedULClient, method="fedul", **options).register()
        return values

    assert sum(told(test_prior="sets")["class-masses"]) == pytest.approx(
        told(test_prior="sets")["num-points"]
    )
    assert "class-masses" not in told()
    few = told(test_prior="sets", **{"fedul.num-sets": 5})
    assert few["reason"]
    assert "class-masses" not in few


def test_every_client_and_every_round_has_random_numbers_of_its_own(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []
    plain = local_training.train_local

    def watch(model: Any, batches: Any, objective: Any, plan: Any, rng: Any) -> Any:
        drawn.append(float(copy.deepcopy(rng).random()))
        return plain(model, batches, objective, plan, rng)

    monkeypatch.setattr(local_training, "train_local", watch)

    def first_number(number: int, server_round: int, seed: int = 0) -> float:
        options = {"method": "fedul", "seed": seed}
        client(FedULClient, number, **options).fit(weights(), {"server-round": server_round})
        return drawn.pop()

    numbers = [first_number(c, r, s) for c in (0, 1) for r in (1, 2) for s in (0, 1)]
    assert len(set(numbers)) == 8
    assert first_number(1, 2) == first_number(1, 2)


def test_batches_of_fedllp_are_the_clients_sets(client: Build) -> None:
    built = client(FedLLPClient, method="fedllp", batch_size=4)
    batches = list(task_of(built).batches(np.random.default_rng(0)))
    assert sorted(int(targets[0]) for _, targets in batches) == list(range(10))
    sizes = {int(targets[0]): len(targets) for _, targets in batches}
    assert [sizes[m] for m in range(10)] == built.data.sets.set_sizes.tolist()
