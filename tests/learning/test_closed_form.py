"""Heads in closed form: sums, class means from sets and from labels, and the discriminant."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fedul_flwr.arrays import Floats
from fedul_flwr.errors import UserError
from fedul_flwr.learning.closed_form import (
    ABSENT,
    SoftSums,
    balanced,
    condition,
    default_shrinkage,
    fit_gaussians,
    linear_head,
    posteriors,
    posteriors_by_em,
    posteriors_of_sets,
    soft_sums,
    sums_size,
)
from tests.support.refusals import refuses

K, D = 3, 5
UNIFORM = np.full(K, 1 / K)


def points(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Features ``(n, D)`` of three classes, and one-hot labels ``(n, K)``."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % K
    return rng.normal(size=(n, D)) + 2 * rng.normal(size=(K, D))[labels], np.eye(K)[labels]


def test_sums_over_clients_are_those_over_all_points_however_they_are_split() -> None:
    x, one_hot = points(60)
    order = np.argsort(one_hot[:, 0], kind="stable")  # a client lacks class 0
    parts = [soft_sums(x[rows], one_hot[rows], stated=True) for rows in np.split(order, 3)]
    whole = soft_sums(x, one_hot, stated=True)
    for total, direct in zip(SoftSums.total(parts), whole, strict=True):
        np.testing.assert_allclose(total, direct, atol=1e-9)
    assert whole.num_points == 60
    assert whole.masses.tolist() == [20, 20, 20]


def test_flat_numbers_are_a_triangle_of_each_symmetric_matrix() -> None:
    sums = soft_sums(*points(20), stated=True)
    flat = sums.flat()
    assert len(flat) == sums_size(K, D) == 6 + 15 + 15
    for back, there in zip(SoftSums.of_flat(flat, K, D), sums, strict=True):
        np.testing.assert_array_equal(back, there)


def test_given_labels_then_means_are_those_of_classes_with_one_pooled_point_more() -> None:
    x = np.array([[0.0], [2.0], [10.0]])
    sums = soft_sums(x, np.eye(2)[[0, 0, 1]], stated=True)
    # Pooled mean 4: (0 + 2 + 4) / 3 = 2 and (10 + 4) / 2 = 7.
    gaussians = fit_gaussians(sums)
    np.testing.assert_allclose(gaussians.means.ravel(), [2, 7])
    # E[x²] - 4² = 104/3 - 16 = 56/3; between 2/3 · (2 - 4)² + 1/3 · (7 - 4)² = 17/3.
    np.testing.assert_allclose(gaussians.covariance, [[13]])
    # A + I = diag(3, 2): 2² / (1/3 + 1/2) = 4.8 points, so that 1 / (1 + 4.8) is shrunk.
    assert default_shrinkage(gaussians) == pytest.approx(1 / 5.8)


def centered(logits: Floats) -> Floats:
    """Logits ``(n, K)`` less their mean over classes, which no probability depends on."""
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


@pytest.mark.parametrize(("offset", "atol"), [(0, 1e-6), (2000, 1e-6), (-1e5, 2e-3)])
def test_the_head_is_a_linear_discriminant_wherever_points_are(offset: float, atol: float) -> None:
    x, one_hot = points(60_000)
    x += offset
    # Each point a hundred million times, beside which one pooled point changes nothing. At 1e5
    # deviations float64 leaves six digits of a variance, and five of the logits, up to 38.
    sums = SoftSums(*(1e8 * part for part in soft_sums(x, one_hot, stated=True)))
    weight, bias = linear_head(fit_gaussians(sums), UNIFORM, 1e-12)
    peer = LinearDiscriminantAnalysis("lsqr").fit(x, one_hot.argmax(axis=1))
    made, expected = x @ weight.T + bias, x @ peer.coef_.T + peer.intercept_
    np.testing.assert_allclose(centered(made), centered(expected), rtol=0, atol=atol)
    np.testing.assert_array_equal(made.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize(("scale", "offset"), [(1, 5000), (1e-5, 1), (1e5, -1e9), (-1, 0)])
@pytest.mark.parametrize("turn", ["labels", "sets", "posteriors"])
def test_features_in_another_unit_from_another_zero_have_the_same_logits(
    turn: str, scale: float, offset: float
) -> None:
    x, one_hot = points(90)
    rng = np.random.default_rng(2)
    soft = one_hot if turn == "labels" else rng.dirichlet(np.ones(K), 90 if turn != "sets" else 9)
    soft = np.repeat(soft, 10, axis=0) if turn == "sets" else soft
    expected, found = (
        centered(features @ weight.T + bias)
        for features in (x, scale * x + offset)
        for weight, bias in [
            linear_head(
                fit_gaussians(soft_sums(features, soft, stated=turn != "posteriors")), UNIFORM
            )
        ]
    )
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_given_shares_that_a_file_has_rounded_then_points_far_from_0_do_not_matter() -> None:
    x, _ = points(90)
    shares = np.repeat(np.round(np.random.default_rng(2).dirichlet(np.ones(K), 9), 4), 10, axis=0)
    shares[:, 0] += 9e-5  # they may miss 1 by 1e-4
    rounded = fit_gaussians(soft_sums(x + 5000, shares, stated=True))
    exact = fit_gaussians(
        soft_sums(x + 5000, shares / shares.sum(axis=1, keepdims=True), stated=True)
    )
    np.testing.assert_allclose(rounded.covariance, exact.covariance, atol=1e-6)


def test_given_points_that_are_all_equal_then_no_class_is_preferred() -> None:
    x, one_hot = np.full((6, D), 12345.678), np.eye(K)[np.arange(6) % K]
    weight, bias = linear_head(fit_gaussians(soft_sums(x, one_hot, stated=True)), UNIFORM)
    logits = np.array([[12345.0] * D, [12346.0] * D]) @ weight.T + bias
    np.testing.assert_allclose(centered(logits), 0, atol=1e-3)


def test_given_shares_of_sets_then_class_means_follow_without_a_label() -> None:
    rng = np.random.default_rng(1)
    x, one_hot = points(30_000)
    shares = rng.dirichlet(np.ones(K), 10)
    labels = one_hot.argmax(axis=1)
    pool = [list(np.flatnonzero(labels == k)) for k in range(K)]
    parts = []
    for row in shares:
        counts = rng.multinomial(800, row)
        members = [pool[k].pop() for k in range(K) for _ in range(counts[k])]
        parts.append(soft_sums(x[members], np.tile(counts / 800, (800, 1)), stated=True))
    means = fit_gaussians(SoftSums.total(parts)).means
    true = np.stack([x[labels == k].mean(axis=0) for k in range(K)])
    assert np.abs(means - true).max() < 0.15  # the classes are some 4 apart


def test_given_posteriors_then_each_point_is_counted_by_them() -> None:
    x = np.array([[0.0], [4.0]])
    sums = soft_sums(x, np.array([[0.75, 0.25], [0.25, 0.75]]), stated=False)
    np.testing.assert_array_equal(sums.gram, np.eye(2))
    # Pooled mean 2: (0.25 · 4 + 2) / 2 and (0.75 · 4 + 2) / 2.
    np.testing.assert_allclose(fit_gaussians(sums).means.ravel(), [1.5, 2.5])


def test_posteriors_are_among_the_shares_of_a_point() -> None:
    logits = np.log([[0.5, 0.3, 0.2]] * 3)
    shares = np.array([[0, 1, 0], [1, 1, 0], [0.2, 0.2, 0.6]])
    # 0.5 : 0.3 is 5 : 3; and 0.1 : 0.06 : 0.12.
    expected = [[0, 1, 0], [0.625, 0.375, 0], [0.1 / 0.28, 0.06 / 0.28, 0.12 / 0.28]]
    np.testing.assert_allclose(posteriors(logits, shares, UNIFORM), expected)
    # A model for other priors says the same of the points once these are divided out.
    prior = np.array([0.6, 0.3, 0.1])
    np.testing.assert_allclose(posteriors(logits + np.log(3 * prior), shares, prior), expected)


def test_posteriors_of_a_set_add_up_to_its_stated_counts() -> None:
    rng = np.random.default_rng(0)
    sets, priors = rng.permutation(np.arange(90) % 3), np.eye(3) / 2 + 1 / 6
    priors[0] = [0.4, 0.6, 0]
    logits, shares = rng.normal(size=(90, 3)) * [1, 1, 500], priors[sets]  # as sure as it may be
    prior = np.array([0.2, 0.5, 0.3])
    soft = posteriors_of_sets(logits, shares, prior, sets, np.zeros(3))
    np.testing.assert_allclose(soft.sum(axis=1), 1)
    assert (soft[sets == 0, 2] == 0).all()
    for m in range(3):
        np.testing.assert_allclose(soft[sets == m].sum(axis=0), 30 * priors[m], rtol=1e-3)
    # Within a set odds are those of the posteriors, but for one factor for each pair of classes.
    plain = posteriors(logits, shares, prior)
    ours, theirs = (np.log(of[sets == 0][:, :2]) for of in (soft, plain))
    assert np.ptp(ours[:, 0] - ours[:, 1] - theirs[:, 0] + theirs[:, 1]) < 1e-9


def test_posteriors_of_a_set_follow_uncertain_counts_in_part() -> None:
    rng = np.random.default_rng(0)
    logits, sets, prior = rng.normal(size=(40, 2)), np.zeros(40, int), np.full(2, 0.5)
    shares = np.tile([0.9, 0.1], (40, 1))
    means = [
        posteriors_of_sets(logits, shares, prior, sets, np.array([drawn]))[:, 0].mean()
        for drawn in (0.0, 1.0, 1e9)
    ]
    # Exact counts, counts that are worth as much as the posteriors, and nothing known.
    assert means[0] == pytest.approx(0.9, abs=1e-5)
    assert means[2] == pytest.approx(posteriors(logits, shares, prior)[:, 0].mean(), abs=1e-6)
    assert min(means[0], means[2]) < means[1] < max(means[0], means[2])


def test_class_shares_of_a_client_follow_from_its_points_and_labels() -> None:
    # Nine features: logits are as they are. A class with three points far from the others.
    logits = np.log([[0.998, 0.001, 0.001]] * 3 + [[0.4, 0.4, 0.2]])
    soft = posteriors_by_em(logits, np.array([2.0, 0, 0]), UNIFORM, 9)
    # A fixed point of π = (c + 1 + Σ r) / 9 and r ∝ π p.
    shares = (np.array([3.0, 1, 1]) + soft.sum(axis=0)) / 9
    expected = shares * np.exp(logits)
    np.testing.assert_allclose(soft, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)
    assert soft[3, 0] > 0.75 > 0.4  # as the client's other points are
    # What the prior of the model adds to logits is taken out; a fourfold root is three times less.
    prior = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(
        posteriors_by_em(logits + np.log(3 * prior), np.array([2.0, 0, 0]), prior, 4), soft
    )
    np.testing.assert_allclose(
        posteriors_by_em(2 * logits, np.array([2.0, 0, 0]), UNIFORM, 36), soft, atol=1e-9
    )


def test_points_that_say_nothing_have_the_shares_of_labels() -> None:
    soft = posteriors_by_em(np.zeros((500, 3)), np.array([7.0, 0, 1]), UNIFORM, 64)
    np.testing.assert_allclose(soft, np.tile([8 / 11, 1 / 11, 2 / 11], (500, 1)))
    assert posteriors_by_em(np.zeros((0, 3)), np.zeros(3), UNIFORM, 64).shape == (0, 3)


def test_a_class_without_points_is_never_predicted() -> None:
    x, one_hot = points(30)
    rows = one_hot[:, 2] == 0
    gaussians = fit_gaussians(soft_sums(x[rows], one_hot[rows], stated=True))
    weight, bias = linear_head(gaussians, UNIFORM)
    assert bias[2] == ABSENT
    assert set((x @ weight.T + bias).argmax(axis=1)) == {0, 1}


def test_condition_tells_whether_sets_differ_enough() -> None:
    alike, apart = np.array([[0.5, 0.5]] * 4), np.array([[0.75, 0.25], [0.25, 0.75]] * 2)
    assert condition(alike.T @ alike) == np.inf
    # Eigenvalues of 4 · [[0.3125, 0.1875], [0.1875, 0.3125]]: 2 and 0.5.
    assert condition(apart.T @ apart) == pytest.approx(4)
    # A class that nobody has does not count, and balanced not how rare a class is.
    rare = np.diag([1.0, 0.01]) @ apart.T @ apart @ np.diag([1.0, 0.01])
    assert condition(balanced(rare)) == pytest.approx(4)
    assert condition(rare) > 4000
    assert condition(np.diag([3.0, 3.0, 0.0])) == pytest.approx(1)


def test_given_a_feature_that_is_not_finite_then_there_are_no_sums() -> None:
    with refuses("model-not-finite", UserError):
        soft_sums(np.array([[np.nan]]), np.eye(1), stated=True)


def test_views_of_a_point_count_for_it_together() -> None:
    rng = np.random.default_rng(0)
    views, soft = rng.normal(size=(6, 3, 4)), rng.dirichlet(np.ones(2), 6)
    made = soft_sums(views, soft, stated=True)
    parts = [soft_sums(views[:, view], soft, stated=True) for view in range(3)]
    for whole, of_views in zip(made, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(whole, np.mean(of_views, axis=0))
    np.testing.assert_allclose(made.gram, soft.T @ soft)
