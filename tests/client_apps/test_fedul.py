"""FedUL's client: its loss, the points it holds out, class priors that it learns or checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedul_flwr import surrogate
from fedul_flwr.client_apps import fedul
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning import set_priors
from fedul_flwr.learning.local import load_arrays, predict_logits
from tests.support.local_tasks import task_of
from tests.support.recorded_calls import recorded
from tests.support.simulated_clients import mlp_clients, mlp_weights

Build = Callable[..., Any]


@pytest.fixture
def client(settings: Callable[..., RunConfig]) -> Build:
    return mlp_clients(settings)


def test_the_heldout_loss_is_that_of_the_points_that_were_held_out(client: Build) -> None:
    options = {"validation_fraction": 0.0, "selection": "heldout", "fedul.num-sets": 12}
    built = client(FedULClient, method="fedul", **options)
    sets, held = built.data.sets, built.held_out
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


@pytest.mark.parametrize("name", ["learn_priors", "check_fit"])
def test_given_points_that_are_held_out_then_priors_are_learned_and_checked_without_them(
    client: Build, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the held-out loss, that chooses the round, would be of points the run knows."""
    likelihoods = recorded(monkeypatch, set_priors, name, 0)
    members = recorded(monkeypatch, set_priors, name, 1)
    options = {"validation_fraction": 0.0, "selection": "heldout", "num_rounds": 3}
    monkeypatch.setattr(fedul, "LEARN_AFTER", 1)
    table = {"fedul.learn-priors": name == "learn_priors", "fedul.heldout-fraction": 0.3}
    built = client(FedULClient, method="fedul", **options, **table)
    start = dict(zip(built.array_names(), mlp_weights(3), strict=True))
    load_arrays(built.model, start)
    sets, kept = built.data.sets, ~built.held_out
    assert 0.6 < kept.mean() < 0.8
    logits = predict_logits(built.model, sets.inputs, sets.points[kept])
    task_of(built, 3)
    np.testing.assert_array_equal(members[0], sets.sets[kept])
    expected = set_priors.set_likelihoods(logits.double().softmax(dim=1).numpy(), None)
    np.testing.assert_allclose(likelihoods[0], expected, rtol=1e-5)
    # Nor are they among the points that are trained on.
    assert set(sets.points[kept]).isdisjoint(sets.points[~kept])


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


def test_the_prior_that_the_server_found_is_that_of_the_loss(client: Build) -> None:
    """Eq. 9: p(m | x) ∝ n_m Σ_k Pi_mk eta_k / pi_k."""
    options = {"validation_fraction": 0.0, "selection": "heldout", "test_prior": "sets"}
    built = client(FedULClient, method="fedul", **options)
    sets, held, start = built.data.sets, built.held_out, mlp_weights(3)
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
            mlp_weights(3), told
        )[2]["loss"]
        for more, told in (({}, rate), ({"test_prior": ",".join(map(str, pi))}, rate))
    ]
    assert losses[0] == losses[1]
    plain = client(
        FedULClient, method="fedul", **{**options, "test_prior": "uniform"}, batch_size=0
    )
    assert plain.fit(mlp_weights(3), {"server-round": 1})[2]["loss"] != losses[0]


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
