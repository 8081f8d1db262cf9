"""FedUL's client: its loss, the points it holds out, class priors that it learns or checks."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fedul_flwr import surrogate
from fedul_flwr.client_apps import fedul
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.client_apps.fedul_consistency import FedULConsistencyClient
from fedul_flwr.data import set_priors
from fedul_flwr.data.seeds import stream
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.learning.local import load_arrays, predict_logits
from tests.support.local_tasks import fit, task_of
from tests.support.recorded_calls import recorded
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients, mlp_weights

Build = Callable[..., Any]


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


def test_the_heldout_loss_is_that_of_the_points_that_were_held_out(client: Build) -> None:
    options = {"validation_fraction": 0.0, "selection": "heldout", "fedul.num-sets": 12}
    built = client(FedULClient, method="fedul", **options)
    sets = built.data.all_sets
    held = np.isin(sets.points, built.data.held_out.points)
    start = mlp_weights(3)
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
    sets = built.data.all_sets
    order = stream(5, "held-out", 2).permutation(np.unique(sets.points))  # of client 2
    expected = sets.points[np.isin(sets.points, order[: int(0.3 * len(order))])]
    np.testing.assert_array_equal(built.data.held_out.points, expected)


@pytest.mark.parametrize("name", ["learn_priors", "check_fit"])
def test_given_points_that_are_held_out_then_priors_are_learned_and_checked_without_them(
    client: Build, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the held-out loss, that chooses the round, would be of points the run knows."""
    likelihoods = recorded(monkeypatch, fedul, name, 0)
    members = recorded(monkeypatch, fedul, name, 1)
    options = {"validation_fraction": 0.0, "selection": "heldout", "num_rounds": 3}
    monkeypatch.setattr(fedul, "LEARN_AFTER", 1)
    table = {"fedul.learn-priors": name == "learn_priors", "fedul.heldout-fraction": 0.3}
    built = client(FedULClient, method="fedul", **options, **table)
    start = mlp_weights(3)
    load_arrays(built.model, dict(zip(built.array_names(), start, strict=True)))
    sets = built.data.sets
    assert 0.6 < len(sets.points) / len(built.data.all_sets.points) < 0.8
    logits = predict_logits(built.model, sets.inputs, sets.points)
    task_of(built, 3)
    np.testing.assert_array_equal(members[0], sets.sets)
    expected = set_priors.set_likelihoods(logits.double().softmax(dim=1).numpy(), None)
    np.testing.assert_allclose(likelihoods[0], expected, rtol=1e-5)
    # Nor are they among the points that are trained on.
    assert set(sets.points).isdisjoint(built.data.held_out.points)


def test_given_exact_priors_then_they_are_checked_against_themselves(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(monkeypatch, fedul, "check_fit", 2)
    priors = recorded(monkeypatch, fedul, "set_likelihoods", 1)
    prior = [0.19, *[0.09] * 9]
    built = client(FedULClient, method="fedul", num_rounds=3, test_prior=",".join(map(str, prior)))
    task_of(built, 2)
    assert told == []
    task_of(built, 3)
    np.testing.assert_array_equal(told[0].means, built.data.sets.priors)
    (used,) = priors
    np.testing.assert_allclose(used, prior)


def test_given_noisy_priors_then_they_are_trained_with_unless_they_are_learned(
    client: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(surrogate, "SurrogateLoss", lambda priors, *_, **__: used.append(priors))
    for learns in (False, True):
        noisy = {"fedul.prior-noise": 1.6, "fedul.learn-priors": learns}
        built = client(FedULClient, method="fedul", **noisy)
        built.loss({"server-round": 1})
        sets = built.data.sets
        means = sets.posterior.means
        assert np.abs(means - sets.priors).max() > 0.01
        np.testing.assert_array_equal(used[-1].numpy(), means if learns else sets.priors)


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
        fedul, "learn_priors", lambda *given: begun.append(given[2][0, 0]) or given[2]
    )
    task_of(built, 20)
    built.state.save("learned-priors", 21, {"priors": np.full((10, 10), 9.0)})
    task_of(built, 20)
    assert begun == [4.0, 4.0]


@pytest.mark.parametrize(
    ("number", "weight"),
    [(2, 0.6 * math.exp(-1.25)), (4, 0.6)],  # halfway: exp(-5·(1/2)²)
)
def test_the_consistency_loss_is_as_the_settings_say(
    client: Build, number: int, weight: float
) -> None:
    options = {"weight": 0.6, "ramp-up-rounds": 4, "threshold": 0.5}
    table = {f"fedul-consistency.{key}": value for key, value in options.items()}
    built = client(FedULConsistencyClient, method="fedul-consistency", noise=0.25, **table)
    found: Any = task_of(built, number).loss
    assert found.weight == pytest.approx(weight)
    assert found.threshold == 0.5
    # Of 12 sets or as many as there are, and 10 classes.
    assert found.log_weights.shape == built.data.sets.priors.shape
    # Vectors get the noise of the settings: the fixed strong view is for images alone.
    assert (found.strong_view(torch.ones(4, 6)) != 1).any()


def test_the_prior_that_the_server_found_is_that_of_the_loss(client: Build) -> None:
    """Eq. 9: p(m | x) ∝ n_m Σ_k Pi_mk eta_k / pi_k."""
    options = {"validation_fraction": 0.0, "selection": "heldout", "test_prior": "sets"}
    built = client(FedULClient, method="fedul", **options)
    sets, start = built.data.held_out, mlp_weights(3)
    pi = np.array([0.19, *[0.09] * 9])
    found, _, _ = built.evaluate(start, {"server-round": 1, "test-prior": pi.tolist()})
    load_arrays(built.model, dict(zip(built.array_names(), start, strict=True)))
    logits = predict_logits(built.model, sets.inputs, sets.points).double().numpy()
    eta = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = ((eta / pi) @ sets.priors.T) * built.data.sets.set_sizes
    chosen = scores[np.arange(len(scores)), sets.sets] / scores.sum(axis=1)
    assert found == pytest.approx(float(-np.log(chosen).mean()), rel=1e-5)
    # And in training: without a step the mean loss is that of all points at the start.
    rate = {"server-round": 1, "test-prior": pi.tolist(), "rate-factor": 0.0}
    losses = [
        fit(
            client(FedULClient, method="fedul", **{**options, **more}, batch_size=0),
            mlp_weights(3),
            told,
        )[2]["loss"]
        for more, told in (({}, rate), ({"test_prior": ",".join(map(str, pi))}, rate))
    ]
    assert losses[0] == losses[1]
    plain = client(
        FedULClient, method="fedul", **{**options, "test_prior": "uniform"}, batch_size=0
    )
    assert fit(plain, mlp_weights(3), {"server-round": 1})[2]["loss"] != losses[0]


def test_a_client_that_cannot_take_part_tells_no_class_masses(client: Build) -> None:
    def told(**options: Any) -> dict[str, Any]:
        one = client(FedULClient, method="fedul", **options)
        values = dict(one.register())
        for stage in one.stages:
            values |= stage.register()
        return values

    assert sum(told(test_prior="sets")["class-masses"]) == pytest.approx(
        told(test_prior="sets")["num-points"]
    )
    assert "class-masses" not in told()
    few = told(test_prior="sets", **{"fedul.num-sets": 5})
    assert few["reason"]
    assert "class-masses" not in few


def test_the_weight_of_absent_classes_arrives_in_the_loss(client: Build) -> None:
    weighed = client(FedULClient, method="fedul", **{"fedul.absent-weight": 0.5})
    assert weighed.loss({}).absent_weight == 0.5
