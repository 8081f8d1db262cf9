"""Heads of AFL and GH-OFL: equal to their papers' formulas, written out here from the points."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.baselines.afl import ridge
from fedul_flwr.baselines.gh_ofl import discriminant
from fedul_flwr.config.methods import METHODS
from fedul_flwr.learning.closed_form import SoftSums, soft_sums
from tests.support.refusals import refuses
from tests.support.runs import last_model, metrics, summary, train
from tests.support.settings import Settings

CLASSES, FEATURES = 3, 6
LABELS: dict[str, Any] = {"labels.total": 300, "points_per_client": 0}

Points = Sequence[tuple[Floats, Ints]]


def owners(sizes: Sequence[int]) -> Points:
    """Points about class means, and labels, of owners with so many; each lacks a class."""
    rng = np.random.default_rng(4)
    means = 2 * rng.normal(size=(CLASSES, FEATURES)) + 5
    owned = []
    for number, size in enumerate(sizes):
        labels = (rng.integers(0, 2, size) + number) % CLASSES
        owned.append((means[labels] + rng.normal(size=(size, FEATURES)), labels))
    return owned


def total(points: Points) -> SoftSums:
    one_hot = np.eye(CLASSES)
    return SoftSums.total(soft_sums(x, one_hot[y], stated=True) for x, y in points)


def joined_pair_by_pair(points: Points, gamma: float, *, clean: bool) -> Floats:
    """Weights (d, K) by AFL's local solutions, its absolute aggregation, and what takes γ out.

    Two clients have W_i = C_i⁻¹ X_iᵀ Y_i with C_i = X_iᵀ X_i + γ I, and together the weights
    (I − R_1 C_2 + R_1 C_2 (C_1 + C_2)⁻¹ C_2) W_1 + the same with 1 and 2 exchanged, R_i = C_i⁻¹.
    """
    unit = np.eye(FEATURES)
    solved = []
    for x, y in points:
        square = x.T @ x + gamma * unit
        solved.append((np.linalg.inv(square) @ x.T @ np.eye(CLASSES)[y], square))
    weight, square = solved[0]
    for other, its in solved[1:]:
        both = np.linalg.inv(square + its)
        here, there = np.linalg.inv(square) @ its, np.linalg.inv(its) @ square
        weight = (unit - here + here @ both @ its) @ weight + (
            unit - there + there @ both @ square
        ) @ other
        square = square + its
    if clean:
        left = gamma * len(points)
        weight = weight + left * np.linalg.inv(square - left * unit) @ weight
    return np.asarray(weight)


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_a_ridge_of_sums_is_what_clients_join_pair_by_pair(
    gamma: float, settings: Settings
) -> None:
    points, prior = owners([9, 14, 20, 3]), np.full(CLASSES, 1 / 3)
    for kept, clean in ((gamma, False), (0.0, True)):
        config = settings(method="afl", **{"afl.gamma": kept})
        weight, bias = ridge(total(points), len(points), prior, config)
        expected = joined_pair_by_pair(points, gamma, clean=clean)
        np.testing.assert_allclose(weight.T, expected, rtol=0, atol=1e-9)
        assert not bias.any()


def test_a_ridge_of_fewer_labels_than_features_is_the_smallest(settings: Settings) -> None:
    points, prior = owners([2, 2]), np.full(CLASSES, 1 / 3)
    weight, _ = ridge(total(points), 2, prior, settings(method="afl"))
    x, y = (np.concatenate([owned[at] for owned in points]) for at in (0, 1))
    np.testing.assert_allclose(weight.T, np.linalg.pinv(x) @ np.eye(CLASSES)[y], atol=1e-9)
    small, _ = ridge(total(points), 2, prior, settings(method="afl", **{"afl.gamma": 1e-9}))
    np.testing.assert_allclose(weight, small, atol=1e-5)


@pytest.mark.parametrize("shrinkage", [0.05, 0.4])
def test_a_discriminant_is_of_normal_densities(shrinkage: float, settings: Settings) -> None:
    points = owners([30, 25, 40])
    x, y = (np.concatenate([owned[at] for owned in points]) for at in (0, 1))
    prior = np.bincount(y) / len(y)  # as in the authors' code
    means = np.stack([x[y == k].mean(axis=0) for k in range(CLASSES)])
    about = x - means[y]
    pooled = about.T @ about / (len(x) - CLASSES)
    shrunk = (1 - shrinkage) * pooled + shrinkage * np.eye(FEATURES) * np.diag(pooled).mean()
    shrunk += 1e-6 * np.eye(FEATURES)
    expected = np.stack(
        [multivariate_normal.logpdf(x, mean, shrunk) for mean in means], axis=1
    ) + np.log(prior)
    config = settings(method="gh-ofl", **{"gh-ofl.shrinkage": shrinkage})
    weight, bias = discriminant(total(points), len(points), prior, config)
    logits = x @ weight.T + bias
    # What all classes share of a density is left out.
    np.testing.assert_allclose(
        logits - logits[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9
    )


def test_a_class_without_labels_is_never_predicted(settings: Settings) -> None:
    x, prior = np.array([[0.0, 0.0], [4.0, 0.5], [0.5, 1.0]]), np.full(CLASSES, 1 / 3)
    sums = soft_sums(x, np.eye(CLASSES)[[0, 1, 0]], stated=True)  # class 2's mean would be 0
    weight, bias = discriminant(sums, 3, prior, settings(method="gh-ofl"))
    assert (x @ weight.T + bias).argmax(axis=1).tolist() == [0, 1, 0]


@pytest.mark.parametrize("method", ["afl", "gh-ofl"])
def test_a_run_is_one_sum(method: str, settings: Settings) -> None:
    masked, plain = (
        train(settings(method=method, **LABELS, **{"closed-form.sum": kind}), 3)
        for kind in ("masked", "plaintext")
    )
    assert [line["test_error"] < 20 for line in metrics(masked)] == [True]  # guessing errs on 90
    for name, array in last_model(masked).items():
        np.testing.assert_allclose(array, last_model(plain)[name], rtol=1e-3, atol=1e-3)
    assert "known_error" not in summary(masked)


@pytest.mark.parametrize("method", ["afl", "gh-ofl"])
@pytest.mark.parametrize(
    ("key", "value"), [("refinements", 0), ("shrinkage", 0.5), ("epsilon", 1.0)]
)
def test_settings_of_another_head_are_refused(
    method: str, key: str, value: float, settings: Settings
) -> None:
    assert METHODS[method].head is not None
    with refuses("setting-without-effect"):
        settings(method=method, **{f"closed-form.{key}": value})
