"""Offsets of owners: a mixed model from sums, beside the same from all points at once."""

import numpy as np
import pytest

from fedul_flwr.arrays import Floats
from fedul_flwr.learning.owner_effects import (
    RATIOS,
    EffectSums,
    Reference,
    Seen,
    effects_size,
    fit_effects,
)
from tests.support.refusals import refuses

K, D = 3, 4


def owners(
    offset: float, count: int = 6, points: int = 80, seed: int = 0
) -> tuple[list[Floats], list[Floats], Floats]:
    """Features, class shares and offsets; each owner has mostly one class."""
    rng = np.random.default_rng(seed)
    means = 3 * rng.normal(size=(K, D))
    offsets = offset * rng.normal(size=(count, D))
    features, shares = [], []
    for owner in range(count):
        prior = np.full(K, 0.1)
        prior[owner % K] = 0.8
        sets = rng.dirichlet(2 * prior, 5)
        rows = np.repeat(sets, points // 5, axis=0)
        classes = [rng.choice(K, p=row) for row in rows]
        features.append(means[classes] + offsets[owner] + rng.normal(size=(len(rows), D)))
        shares.append(rows)
    return features, shares, offsets


def total(features: list[Floats], shares: list[Floats]) -> EffectSums:
    flat = sum(EffectSums.of(x, r).flat() for x, r in zip(features, shares, strict=True))
    assert isinstance(flat, np.ndarray)
    assert len(flat) == effects_size(shares[0].shape[1], features[0].shape[-1])
    return EffectSums.of_flat(flat, shares[0].shape[1], features[0].shape[-1])


def dense(features: list[Floats], shares: list[Floats], ratio: float) -> tuple[float, Floats]:
    """Restricted likelihood and class means with the covariance of all points written out."""
    x, r = np.concatenate(features), np.concatenate(shares)
    mean = x.mean(axis=0)
    members = np.repeat(np.arange(len(features)), list(map(len, features)))
    covariance = np.eye(len(x)) + ratio * (members[:, None] == members)
    inverse = np.linalg.inv(covariance)
    regular = r.T @ inverse @ r + np.eye(r.shape[1])
    right = r.T @ inverse @ (x - mean)
    fit = np.linalg.solve(regular, right)
    rest = np.einsum("if,ij,jf->f", x - mean, inverse, x - mean) - (fit * right).sum(axis=0)
    beside = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(regular)[1]
    return float(-((len(x) - r.shape[1]) * np.log(rest) + beside).sum() / 2), fit


@pytest.mark.parametrize("offset", [0.0, 0.3, 3.0])
def test_sums_give_the_fit_of_all_points(offset: float) -> None:
    features, shares, _ = owners(offset)
    made = fit_effects(total(features, shares))
    by_ratio = [dense(features, shares, ratio) for ratio in RATIOS]
    best = int(np.argmax([likelihood for likelihood, _ in by_ratio]))
    assert made.ratio == RATIOS[best]
    np.testing.assert_allclose(made.from_mean, by_ratio[best][1], atol=1e-8)


def test_owners_who_do_not_differ_are_hardly_moved() -> None:
    ratios = []
    for seed in range(10):
        features, shares, _ = owners(0.0, count=12, seed=seed)
        made = fit_effects(total(features, shares))
        ratios.append(made.ratio)
        if not made.ratio:
            seen = Seen.of(features[0], shares[0])
            np.testing.assert_array_equal(made.offset(seen), np.zeros(D))
    assert np.median(ratios) == 0
    assert max(ratios) <= 0.003


def test_offsets_come_back_although_each_owner_has_its_class() -> None:
    features, shares, offsets = owners(3.0, count=12, points=400, seed=1)
    made = fit_effects(total(features, shares))
    assert made.ratio == 1
    both = zip(features, shares, strict=True)
    back = np.array([made.offset(Seen.of(x, r)) for x, r in both])
    # But for a shift that all share, which class means take over.
    apart = (back - back.mean(axis=0)) - (offsets - offsets.mean(axis=0))
    assert np.sqrt((apart**2).mean()) < 0.35


def test_an_offset_by_hand() -> None:
    """Ten points, λ = 0.1: w = 1 / (1 + 1). Off by 4 - 1 - (0.5 · 1 + 0.5 · 3) = 1; half of it."""
    reference = Reference(np.array([1.0]), np.array([[1.0], [3.0]]), 0.1)
    seen = Seen(10, np.array([0.5, 0.5]), np.array([4.0]))
    np.testing.assert_allclose(reference.offset(seen), [0.5])
    assert reference.offset(Seen(0, np.zeros(2), np.zeros(1))) == 0


def test_far_from_zero_and_in_another_unit_it_is_the_same() -> None:
    features, shares, _ = owners(1.0)
    made = fit_effects(total(features, shares))
    other = fit_effects(total([1e-3 * x + 5 for x in features], shares))
    assert other.ratio == made.ratio
    np.testing.assert_allclose(other.from_mean, 1e-3 * made.from_mean, rtol=1e-5, atol=1e-9)


def test_views_count_as_their_mean_and_a_feature_without_spread_does_not_count() -> None:
    features, shares, _ = owners(1.0)
    plain = fit_effects(total(features, shares))
    twice = fit_effects(total([np.stack([x, x], axis=1) for x in features], shares))
    np.testing.assert_allclose(twice.from_mean, plain.from_mean)
    constant = [np.concatenate([x, np.full((len(x), 1), 7.0)], axis=1) for x in features]
    made = fit_effects(total(constant, shares))
    assert made.ratio == plain.ratio
    np.testing.assert_allclose(made.from_mean[:, -1], 0, atol=1e-9)


def test_sums_of_no_points_are_refused() -> None:
    nothing = EffectSums.of(np.zeros((0, D)), np.zeros((0, K)))
    with refuses("sum-wrong"):
        fit_effects(nothing)
