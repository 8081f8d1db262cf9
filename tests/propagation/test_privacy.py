"""Noise of codes and labels by hand and by its distribution, and what is refused."""

import math
import re
from typing import Any

import numpy as np
import pytest

import fedul_flwr.propagation.server
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.federated.strategy import validate
from fedul_flwr.propagation import privacy as module
from fedul_flwr.propagation.privacy import (
    SENSITIVITY,
    noisy_directions,
    privacy_plan,
    randomized_labels,
)
from fedul_flwr.secure.noise import gaussian_sigma, gaussians
from fedul_flwr.secure.session import keystream
from tests.support.refusals import refuses

KEY = bytes(range(32))
FLOATS = np.random.default_rng(0).normal(size=(6, 5))


def known(size: int) -> bytes:
    """Entropy that is always the same."""
    return KEY[:size]


# Directions


def test_noisy_directions_by_hand() -> None:
    # 30 numbers of AES-256 under the one key that was asked for; (3, 4) / 5 = (0.6, 0.8).
    features = np.zeros((6, 5))
    features[0, :2] = 3, 4
    noise = gaussians(keystream(KEY, 240).view(np.uint64)).reshape(6, 5)
    expected = 0.5 * noise
    expected[0, :2] += 0.6, 0.8
    found = noisy_directions(features, 0.5, known)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e300])
def test_only_directions_are_released(scale: float) -> None:
    found, expected = (noisy_directions(rows, 0.3, known) for rows in (FLOATS * scale, FLOATS))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_sensitivity() -> None:
    # With the same noise, releases of any two points are 2 apart at most, and so far of opposites.
    rows = np.vstack([FLOATS, -FLOATS, np.zeros((1, 5))])
    clean = noisy_directions(rows, 1e-9, known).astype(np.float64)
    apart = np.linalg.norm(clean[:, None] - clean[None], axis=2)
    assert apart.max() == pytest.approx(SENSITIVITY, abs=1e-6)


def test_every_block_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []

    def counted(size: int) -> bytes:
        keys.append(bytes([len(keys)]) * size)
        return keys[-1]

    monkeypatch.setattr(module, "_BLOCK_NUMBERS", 10)  # two rows of five
    found = noisy_directions(np.zeros((5, 5)), 1.0, counted)
    assert [len(key) for key in keys] == [32, 32, 32]
    assert len(np.unique(found)) == 25  # the last block has an odd number of numbers


def test_noise_is_never_the_same() -> None:
    assert (noisy_directions(FLOATS, 1.0) != noisy_directions(FLOATS, 1.0)).all()


# Labels


def outcomes(label: int, num_classes: int, epsilon: float, monkeypatch: Any) -> list[int]:
    """How often each class comes out, over eight chances and as many picks as there are others."""
    chances = np.arange(1, 16, 2, dtype=np.uint64) << np.uint64(60)  # u = 1/16, 3/16, …, 15/16
    picks = np.arange(num_classes - 1, dtype=np.uint64)
    raw = np.array([np.repeat(chances, len(picks)), np.tile(picks, 8)])
    monkeypatch.setattr(module, "_raw", lambda count, entropy: raw.ravel())
    found = randomized_labels(np.full(raw.shape[1], label), num_classes, epsilon)
    return np.bincount(found, minlength=num_classes).tolist()


def test_probabilities_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # K = 3, e^ε = 2: a label stays with probability 2/4, each other comes with 1/4; of 16: 8, 4, 4.
    epsilon = math.log(2)
    assert outcomes(0, 3, epsilon, monkeypatch) == [8, 4, 4]
    assert outcomes(1, 3, epsilon, monkeypatch) == [4, 8, 4]
    assert outcomes(2, 3, epsilon, monkeypatch) == [4, 4, 8]
    # K = 2, e^ε = 3: 3/4 and 1/4; of 8: 6 and 2. K = 4, e^ε = 5: 5/8 and 1/8; of 24: 15, 3, 3, 3.
    assert outcomes(1, 2, math.log(3), monkeypatch) == [2, 6]
    assert outcomes(3, 4, math.log(5), monkeypatch) == [3, 3, 3, 15]


def test_rounding_changes_more_labels_and_not_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    # At ε = 60 a share of 10^-26 changes; the smallest that a number of 53 bits can say is 10^-16.
    monkeypatch.setattr(module, "_raw", lambda count, entropy: np.zeros(count, dtype=np.uint64))
    assert randomized_labels([0, 1], 2, 60.0).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "num_classes", "code"),
    [([2], 2, "labels-wrong"), ([0], 0, "labels-wrong"), ([0.5], 2, "labels-type")],
)
def test_given_no_labels_of_classes_then_they_are_refused(
    labels: list[Any], num_classes: int, code: str
) -> None:
    with refuses(code):
        randomized_labels(labels, num_classes, 1.0)


def parse(method: str = "xclp", **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


EPSILON = {"xclp.codes-epsilon": 10.0}


@pytest.mark.parametrize(
    ("method", "options", "releases"),
    [
        ("xclp", {}, 20),  # 30 rounds, 10 of them on labels alone
        ("xclp", {"num-rounds": 12}, 2),
        ("xclp", {"semi.labels-only-rounds": 0, "num-rounds": 7}, 7),
        ("xclp", {"num-rounds": 5}, 1),  # no propagation at all
        ("xclp-predict", {}, 1),
        ("xclp-predict", {"num-rounds": 300}, 1),
    ],
)
def test_releases(method: str, options: dict[str, Any], releases: int) -> None:
    plan = privacy_plan(parse(method, **EPSILON, **options))
    assert plan.releases == releases
    assert plan.sigma == gaussian_sigma(10, 1e-5, 2, releases)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("xclp", {}, []),
        # √20 times as much; updates in training have no noise.
        ("xclp", EPSILON, ["sigma 4.471 .*releases 20", "NOT differentially private"]),
        ("xclp-predict", {"xclp.labels-epsilon": 2.0}, [r"\(2, 0\)"]),
    ],
)
def test_the_log_says_what_holds(
    method: str, options: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(fedul_flwr.propagation.server, "log", lambda _, text: found.append(text))
    validate(parse(method, **{"xclp.secure": "rlwe"}, **options))
    assert len(found) == len(said)
    assert all(re.search(*pair) for pair in zip(said, found, strict=True))


def test_propagation_within_clients_needs_no_noise() -> None:
    with refuses("setting-without-effect", setting="xclp.codes-epsilon"):
        parse("local-lp", **EPSILON)
