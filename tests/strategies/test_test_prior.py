"""The class priors at test time in whole runs: who finds them, who hears of them, what they do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.arrays import Floats
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.errors import UserError
from fedul_flwr.federated.members import ClientReport
from fedul_flwr.federated.messages import Content
from fedul_flwr.results.predict import load_model
from fedul_flwr.strategies.fedul import FedULStrategy
from tests.support.refusals import refuses
from tests.support.runs import assert_same_run, cut_off, metrics, resume, same, summary, train
from tests.support.settings import Settings

QUICK = {"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 120}
UNEQUAL = {"partition": "dirichlet", "fedul.num-sets-max": 14}
"""Clients that differ in their classes, points and sets."""


def mean_of_sets(config: RunConfig, clients: int) -> tuple[Floats, Floats]:
    """Mean of all sets' priors by what the simulation knows: weighted by sizes, and not."""
    split = build_split(source_directory("digits"), clients, config)
    rows = [row for client in split.clients for row in client.priors]
    sizes = [
        int((client.sets == m).sum()) for client in split.clients for m in range(len(client.priors))
    ]
    total = sum(size * row for size, row in zip(sizes, rows, strict=True))
    return np.asarray(total) / sum(sizes), np.mean(rows, axis=0)


def skewed_digits(folder: Path) -> str:
    """Digits whose classes are as frequent as 3 : 1 : … : 1 : 3 in training."""
    source = load_source("digits")
    folder.mkdir()
    for split, data in (("train", source.train), ("test", source.test)):
        labels = np.asarray(data.labels)
        common = np.isin(labels, (0, 9))
        keep = common | (np.arange(len(labels)) % 3 == 0)
        np.savez(folder / f"{split}.npz", images=data.inputs[keep], labels=labels[keep])
    return str(folder)


def test_sets_give_the_mean_weighted_by_their_sizes(settings: Settings) -> None:
    config = settings(**QUICK, **UNEQUAL, test_prior="sets")
    expected, unweighted = mean_of_sets(config, 3)
    assert np.abs(expected - unweighted).max() > 0.005  # sizes matter here
    directory = train(config, 3)
    found = summary(directory)
    assert found["test_prior_source"] == "sets"
    np.testing.assert_allclose(found["test_prior"], expected, rtol=1e-9)
    np.testing.assert_allclose(load_model(directory).trained_priors(), expected, rtol=1e-9)
    assert "test_prior_estimate" not in found
    at_the_start = json.loads((directory / "config.json").read_text())["data"]["test_prior"]
    assert at_the_start is None


def test_a_refused_client_has_no_part_in_the_mean(settings: Settings) -> None:
    options = {
        **{"points_per_client": 0, "fedul.num-sets": 8, "fedul.num-sets-max": 12},
        "on_client_failure": "continue",
    }
    config = settings(**QUICK | options, partition="dirichlet", test_prior="sets")
    split = build_split(source_directory("digits"), 6, config)
    able = [client for client in split.clients if len(client.priors) >= 10]
    assert 0 < len(able) < 6  # the seed gives both kinds
    masses = sum(np.bincount(client.labels, minlength=10) for client in able)
    found = summary(train(config, 6))["test_prior"]
    np.testing.assert_allclose(found, masses / masses.sum(), rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"selection": "heldout", "base": "fedprox"}])
def test_found_and_given_are_the_same_training(
    settings: Settings, tmp_path: Path, options: dict[str, Any]
) -> None:
    shared = {**QUICK, **options, "dataset": skewed_digits(tmp_path / "skewed")}
    found = train(settings(**shared, test_prior="sets"), 3)
    prior = summary(found)["test_prior"]
    assert max(prior) > 2 * min(prior)
    given = train(settings(**shared, test_prior=",".join(map(repr, prior))), 3)
    assert same(given, found)
    assert [line["heldout_loss"] for line in metrics(given)] == [
        line["heldout_loss"] for line in metrics(found)
    ]
    assert summary(given)["test_prior_source"] == "given"
    np.testing.assert_allclose(summary(given)["test_prior"], prior)
    # It has an effect, and K numbers a client are all that it costs.
    uniform = train(settings(**shared), 3)
    assert summary(uniform)["test_prior_source"] == "uniform"
    assert summary(uniform)["test_prior"] == [0.1] * 10
    assert not same(uniform, given)
    more = metrics(found)[0]["bytes_down"] - metrics(given)[0]["bytes_down"]
    assert more == 3 * 10 * 8 * (2 if options else 1)


def test_sets_survive_a_resume(settings: Settings) -> None:
    whole = train(settings(**{**QUICK, "num_rounds": 4}, **UNEQUAL, test_prior="sets"), 3)
    config = settings(**{**QUICK, "num_rounds": 4}, **UNEQUAL, test_prior="sets")
    directory = cut_off(config, 3, call=4)  # hello, prepare, two rounds are over
    assert len(metrics(directory)) == 2
    resumed = resume(directory, 3)
    assert_same_run(resumed, whole)
    assert summary(resumed)["test_prior"] == summary(whole)["test_prior"]


# What the server makes of class masses, by hand


def hearing(settings: Settings, **options: Any) -> FedULStrategy:
    """FedUL's server side before it has heard a client; two classes."""
    config = settings(**QUICK, **{"test_prior": "sets", **options})
    return FedULStrategy(config, FedAvg(), Content(values={"class-names": ["a", "b"]}))


def checked(reason: str = "", **more: Any) -> Content:
    values = {"condition-number": 2.0, "reason": reason, "num-points": 4}
    return Content(values={**values, **more})


def test_the_prior_is_the_sum_of_all_masses_divided_by_all_points(settings: Settings) -> None:
    strategy = hearing(settings)
    assert strategy.test_prior is None
    assert not any(stage.config() for stage in strategy.stages)
    answers = {}
    for client, masses in enumerate(([6.0, 2.0], [0.0, 4.0], [0.5, 0])):  # no class is a must
        answers[client] = checked(**{"class-masses": masses})
        strategy.registry._admit(ClientReport(client), answers[client])
    strategy._clients_changed(answers)
    # 6 + 0 + 0.5 = 6.5 points of a, 2 + 4 + 0 = 6 of b, 12.5 together.
    np.testing.assert_allclose(strategy.test_prior, [0.52, 0.48])
    assert [stage.config() for stage in strategy.stages if stage.config()] == [
        {"test-prior": pytest.approx([0.52, 0.48])}
    ]


def test_a_client_config_that_returns_nothing_is_refused_by_its_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = hearing(settings)
    monkeypatch.setattr(strategy, "client_config", lambda: None)
    with refuses("own-method-wrong", match="client_config"):
        strategy._config(ConfigRecord(), 1)


def overlapping_classes(folder: Path) -> str:
    """Three Gaussian classes of two pixels that overlap; the first is four in five in the test."""
    rng = np.random.default_rng(0)
    centers = np.array([[90, 128], [128, 165], [166, 128]])
    folder.mkdir()
    for split, counts in (("train", (600, 600, 600)), ("test", (480, 60, 60))):
        labels = np.repeat(np.arange(3), counts)
        pixels = centers[labels] + 35 * rng.standard_normal((len(labels), 2))
        images = pixels.round().clip(0, 255).astype(np.uint8).reshape(-1, 1, 2, 1)
        np.savez(folder / f"{split}.npz", images=images, labels=labels)
    return str(folder)


def test_em_finds_the_skew_of_the_test_images(settings: Settings, tmp_path: Path) -> None:
    place = overlapping_classes(tmp_path / "overlap")
    quick = {"model": "mlp", "num_rounds": 4, "dataset": place}
    directory = train(settings(**quick, test_prior="em"), 3)
    found = summary(directory)
    assert found["test_prior_source"] == "em"
    np.testing.assert_allclose(found["test_prior"], [1 / 3] * 3)
    assert found["test_prior_estimate"][0] > 0.6  # of 0.8, from 0.33
    assert found["test_error_reweighed"] < found["test_error"] - 5
    # The estimate is in no part of training, and prediction finds it again.
    assert same(train(settings(**quick), 3), directory)
    predictor, test = load_model(directory), load_source(place).test
    images = np.asarray(test.inputs)
    priors = predictor.estimate_priors(predictor.predict_proba(images))
    np.testing.assert_allclose(priors, found["test_prior_estimate"], rtol=1e-3)
    wrong = predictor.predict(images, priors=priors) != np.asarray(test.labels)
    assert 100 * wrong.mean() == pytest.approx(found["test_error_reweighed"], abs=0.5)


def test_the_release_loss_leaves_the_prior_out(settings: Settings) -> None:
    release = {**QUICK, "fedul.surrogate-loss": "release"}
    message = r"effect only with fedul\.surrogate-loss other than 'release'"
    for prior in ("sets", ",".join(["0.1"] * 10)):
        with pytest.raises(UserError, match=message):
            train(settings(**release, test_prior=prior), 2)
