"""Errors known without labels: heads without one of their points, and confusion from shares."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from fedul_flwr.learning.closed_form import (
    SoftSums,
    default_shrinkage,
    fit_gaussians,
    head_of_spectrum,
    linear_head,
    posteriors,
    shrunk_spectrum,
    soft_sums,
)
from fedul_flwr.learning.known_error import (
    ARRAYS_OF_ONE,
    CORRECTED_WITHIN,
    LeaveOneOut,
    ShareSums,
    known_error,
    misfit,
    moved_by_others,
    share_sums_size,
)

CLASSES, FEATURES = 3, 8
PRIOR = np.array([0.5, 0.3, 0.2])


def sums_of(shares: Any, said: Any) -> ShareSums:
    """Of a model that is sure of the classes that it says."""
    return ShareSums.of(shares, np.eye(shares.shape[1])[said], shares)


def sets_of_points(sets: int = 12, size: int = 25, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features ``(n, d)``, labels, and class shares of each point's set."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(CLASSES, FEATURES))
    labels = np.concatenate(
        [rng.choice(CLASSES, size, p=rng.dirichlet(np.ones(CLASSES))) for _ in range(sets)]
    )
    of_set = np.eye(CLASSES)[labels].reshape(sets, size, CLASSES).mean(axis=1)
    return means[labels] + rng.normal(size=(len(labels), FEATURES)), labels, of_set.repeat(size, 0)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("views", [1, 2, 3])
def test_each_points_logits_are_those_of_the_head_of_all_others(
    stated: bool, offset: float, views: int
) -> None:
    x, _, soft = sets_of_points()
    x = x[:, None] + offset
    of_views = np.random.default_rng(2).normal(size=(len(x), views, FEATURES)) * 0.5
    of_views[:, 0] = 0
    x = x + of_views
    if not stated:
        soft = posteriors(np.random.default_rng(1).normal(size=soft.shape), soft)
    sums = soft_sums(x, soft, stated=stated)
    gaussians = fit_gaussians(sums)
    part = default_shrinkage(gaussians)
    spectrum = shrunk_spectrum(gaussians, part)
    weight, _ = head_of_spectrum(gaussians, PRIOR, spectrum)
    rng = np.random.default_rng(0)
    one = LeaveOneOut.of(gaussians, sums.gram, PRIOR, part, spectrum, rng)
    values, vectors = spectrum
    exact = one._replace(sketch=vectors / np.sqrt(values) * math.sqrt(FEATURES))
    logits = exact.logits(x, soft, weight, stated=stated)
    for number in range(0, len(x), 7):
        r, of_point = soft[number], x[number]
        point = of_point.mean(axis=0)
        gram = np.outer(r, r) if stated else np.diag(r)
        parts = sums.gram - gram, sums.sums - np.outer(r, point)
        others = SoftSums(*parts, sums.second - of_point.T @ of_point / views)
        head, bias = linear_head(fit_gaussians(others), PRIOR, part)
        brute = head @ of_point[0] + bias
        # Up to what all classes share, and to how shrinkage moves, of the order of 1 / n.
        wanted, made = brute - brute[0], logits[number] - logits[number][0]
        np.testing.assert_allclose(made, wanted, atol=0.05, rtol=0.02)
    sketched = one.logits(x, soft, weight, stated=stated).argmax(axis=1)
    assert (sketched == logits.argmax(axis=1)).mean() > 0.97


def test_where_variances_were_negative_logits_are_near_those_of_the_head_of_all_others() -> None:
    # Sets that differ little, and directions of little variance: class means explain more than all.
    rng = np.random.default_rng(3)
    deviations = np.geomspace(1, 1e-3, 40)
    shares = rng.dirichlet(np.full(CLASSES, 60.0), 16).repeat(40, axis=0)
    labels = np.array([rng.choice(CLASSES, p=row) for row in shares])
    x = rng.normal(size=(CLASSES, 40))[labels] * 0.3 + rng.normal(size=(len(labels), 40))
    x *= deviations
    sums = soft_sums(x, shares, stated=True)
    gaussians = fit_gaussians(sums)
    part = 0.2
    spectrum = shrunk_spectrum(gaussians, part)
    weight, _ = head_of_spectrum(gaussians, PRIOR, spectrum)
    one = LeaveOneOut.of(gaussians, sums.gram, PRIOR, part, spectrum, rng)
    exact = one._replace(sketch=spectrum[1] / np.sqrt(spectrum[0]) * math.sqrt(40))
    assert 0 < one.clipped.any(axis=0).sum() < CLASSES

    def of_others(number: int) -> Any:
        of_point = soft_sums(x[[number]], shares[[number]], stated=True).about(sums.origin)
        others = SoftSums(*(a - b for a, b in zip(sums[:3], of_point[:3], strict=True)))
        head, bias = linear_head(fit_gaussians(others), PRIOR, part)
        return head @ x[number] + bias

    some = range(0, len(x), 5)
    brute = np.stack([of_others(number) for number in some])
    off = {
        name: np.abs(
            np.diff(form.logits(x, shares, weight, stated=True)[list(some)] - brute, axis=1)
        ).mean()
        for name, form in (
            ("clipped", exact),
            ("as if not", exact._replace(clipped=0 * exact.clipped)),
        )
    }
    assert off["clipped"] < off["as if not"] / 3


def test_what_is_sent_of_it_is_all_of_it() -> None:
    x, _, soft = sets_of_points()
    sums = soft_sums(x, soft, stated=True)
    gaussians = fit_gaussians(sums)
    spectrum, rng = shrunk_spectrum(gaussians, 0.5), np.random.default_rng(0)
    one = LeaveOneOut.of(gaussians, sums.gram, PRIOR, 0.5, spectrum, rng)
    sent = one.arrays(np.float64)
    assert sent.keys() == ARRAYS_OF_ONE
    again = LeaveOneOut.of_arrays(sent, one.part)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))


def test_confusion_of_two_sets_by_hand() -> None:
    # Sets of four with shares (3/4, 1/4) and (1/4, 3/4); the model says 0 of 2 and of 1 points:
    # 3/4 a + 1/4 b = 2/4 and 1/4 a + 3/4 b = 1/4, so a = 5/8 and b = 1/8.
    shares = np.repeat([[0.75, 0.25], [0.25, 0.75]], 4, axis=0)
    said = np.array([0, 0, 1, 1, 0, 1, 1, 1])
    made = known_error(sums_of(shares, said), np.array([0.5, 0.5]))
    np.testing.assert_allclose(made.confusion, [[5 / 8, 3 / 8], [1 / 8, 7 / 8]], atol=1e-6)
    assert made.error == pytest.approx(100 * (1 - (5 / 8 + 7 / 8) / 2), abs=1e-4)
    other = known_error(sums_of(shares, said), np.array([1.0, 0.0]))
    assert other.error == pytest.approx(100 * 3 / 8, abs=1e-4)
    # Three of four and none: a = 9/8 and b = -3/8 are no probabilities; the nearest are 1 and 0.
    made = known_error(sums_of(shares, np.array([0, 0, 0, 1, 1, 1, 1, 1])), np.full(2, 0.5))
    np.testing.assert_allclose(made.right, [9 / 8, 11 / 8])
    assert made.error == 0
    assert ((made.confusion >= 0) & (made.confusion <= 1 + 1e-6)).all()
    np.testing.assert_allclose(made.confusion.sum(axis=1), 1, atol=1e-5)


def test_of_labels_it_is_the_usual_confusion_matrix() -> None:
    rng = np.random.default_rng(0)
    labels, said = rng.integers(CLASSES, size=200), rng.integers(CLASSES, size=200)
    made = known_error(sums_of(np.eye(CLASSES)[labels], said), PRIOR)
    usual = confusion_matrix(labels, said, normalize="true")
    np.testing.assert_allclose(made.confusion, usual, atol=1e-5)
    # Var of a class's accuracy is c (1 - c) / n, and errors of classes weigh by their priors.
    own, count = np.diag(usual), np.bincount(labels)
    deviation = 100 * math.sqrt(np.sum(PRIOR**2 * own * (1 - own) / count))
    assert made.deviation == pytest.approx(deviation, rel=1e-3)


@pytest.mark.parametrize("sampled", [0.0, 1.0])
def test_the_interval_has_the_error_as_often_as_it_says(sampled: float) -> None:
    """Sets with fixed counts, or points drawn by their shares; predictions from a confusion matrix:
    400 times."""
    rng = np.random.default_rng(0)
    truth = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])
    _, labels, shares = sets_of_points(30, 20)
    error = 100 * (1 - PRIOR @ np.diag(truth))
    made = []
    for _ in range(400):
        if sampled:
            labels = (rng.random((len(shares), 1)) > shares.cumsum(axis=1)).sum(axis=1)
            labels = np.minimum(labels, CLASSES - 1)  # sums of shares may be a digit below 1
        said = (rng.random((len(labels), 1)) > truth.cumsum(axis=1)[labels]).sum(axis=1)
        sums = sums_of(shares, said)._replace(drawn=sampled * len(said))
        made.append(known_error(sums, PRIOR))
    errors, deviations = np.array([(one.error, one.deviation) for one in made]).T
    assert abs(errors.mean() - error) < 4 * errors.std() / math.sqrt(400)  # no constraint biases it
    wide = 1.3 if sampled else 1.15  # what is subtracted of points that are drawn is the least
    assert 0.87 <= deviations.mean() / errors.std() <= wide
    assert 0.92 <= (abs(errors - error) < 1.96 * deviations).mean() <= (0.995 if sampled else 0.985)


def test_the_interval_holds_where_class_shares_are_estimates_from_few_labels() -> None:
    """Shares of each set, drawn from a Dirichlet, are their means after ``worth`` labels of it."""
    rng, sets, size, worth = np.random.default_rng(1), 30, 40, 10
    truth = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])
    error, made = 100 * (1 - PRIOR @ np.diag(truth)), []
    for _ in range(400):
        of_sets = rng.dirichlet(np.ones(CLASSES), sets)
        labels = np.stack([rng.choice(CLASSES, size, p=row) for row in of_sets])
        counts = np.stack([rng.multinomial(worth, row) for row in of_sets])
        stated = (counts + 1) / (worth + CLASSES)
        said = (rng.random((sets * size, 1)) > truth.cumsum(axis=1)[labels.ravel()]).sum(axis=1)
        sums = sums_of(stated.repeat(size, axis=0), said)
        drawn = sets * size**2 / (worth + CLASSES + 1)
        made.append([known_error(sums._replace(drawn=d), PRIOR) for d in (0.0, drawn)])
    errors, short, wide = (
        np.array(values)
        for values in zip(
            *((exact.error, exact.deviation, one.deviation) for exact, one in made), strict=True
        )
    )
    assert (abs(errors - error) < 1.96 * short).mean() < 0.8  # as if shares were exact
    assert 0.93 <= (abs(errors - error) < 1.96 * wide).mean() <= 0.995


def test_a_correction_is_right_within_a_part_of_it() -> None:
    # Of one-hot shares errors are counts: with the correction 1 of 4 points of class 0 is wrong,
    # without it 3 of 4, and none of class 1. At equal priors that is 12.5 % and 37.5 %.
    shares = np.eye(2).repeat(4, axis=0)
    logits = np.array([[1, 0]] * 3 + [[0, 1]] * 5, float)
    correction = np.zeros((8, 2))
    correction[:2] = [2, 0]  # without it these two are of the other class
    sums = ShareSums.of(shares, logits, shares, correction)
    made, plain = (known_error(one, np.array([0.5, 0.5])) for one in (sums, sums_of_same(sums)))
    assert made.error == plain.error == pytest.approx(12.5)
    extra = math.sqrt(made.deviation**2 - plain.deviation**2)
    assert extra == pytest.approx(CORRECTED_WITHIN * (37.5 - 12.5))


def sums_of_same(sums: ShareSums) -> ShareSums:
    """As if nothing had been corrected."""
    return sums._replace(uncorrected=sums.said)


def test_shares_that_are_all_alike_say_nothing() -> None:
    shares = np.tile([0.5, 0.3, 0.2], (40, 1))
    for sums, prior in (
        (sums_of(shares, np.zeros(40, int)), PRIOR),
        (sums_of(np.eye(31), np.arange(31)), np.full(31, 1 / 31)),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            known_error(sums, prior)


def test_sums_that_no_points_have_say_nothing() -> None:
    _, labels, shares = sets_of_points()
    honest = sums_of(shares, labels)
    assert known_error(honest, PRIOR).error < 1
    for said in (1.1 * honest.said, honest.said - 100 * np.eye(CLASSES) + 100 / CLASSES):
        with pytest.raises(ValueError):  # noqa: PT011
            known_error(honest._replace(said=said), PRIOR)


def test_a_class_that_nobody_has_is_never_right() -> None:
    shares = np.repeat([[0.75, 0.25, 0], [0.25, 0.75, 0]], 4, axis=0)
    said = np.array([0, 0, 0, 1, 0, 1, 1, 1])  # all of the two classes as they are
    made = known_error(sums_of(shares, said), np.array([0.4, 0.4, 0.2]))
    assert made.error == pytest.approx(20, abs=1e-3)
    assert not made.confusion[2].any()


def test_sums_of_clients_are_those_of_all_points() -> None:
    _, labels, shares = sets_of_points()
    half = len(labels) // 2
    parts = [sums_of(shares[part], labels[part]) for part in (slice(half), slice(half, None))]
    flat = parts[0].flat() + parts[1].flat()
    assert len(flat) == share_sums_size(CLASSES)
    for made, whole in zip(ShareSums.of_flat(flat, CLASSES), sums_of(shares, labels), strict=True):
        np.testing.assert_allclose(made, whole, atol=1e-9)


def test_a_refined_heads_logits_are_nearer_to_those_of_both_heads_made_anew() -> None:
    """Without a point the first head says other posteriors, and the second is of these."""
    x, _, shares = sets_of_points(12, 20, seed=3)
    x = np.random.default_rng(5).normal(size=x.shape) + 0.5 * x

    def made(sums: SoftSums) -> Any:
        gaussians = fit_gaussians(sums)
        spectrum = shrunk_spectrum(gaussians, 0.1)
        return gaussians, spectrum, head_of_spectrum(gaussians, PRIOR, spectrum)

    def logits(points: Any, head: Any) -> Any:
        return points @ head[0].T + head[1]

    def both(rows: Any) -> tuple[Any, Any]:
        first = made(soft_sums(x[rows], shares[rows], stated=True))[2]
        soft = posteriors(logits(x[rows], first), shares[rows], PRIOR)
        return first, made(soft_sums(x[rows], soft, stated=False))[2]

    rng = np.random.default_rng(0)
    out, moved, unsure = shares, np.zeros(0), np.zeros(0)
    for stated in (True, False):
        sums = soft_sums(x, out, stated=stated)
        gaussians, spectrum, head = made(sums)
        values, vectors = spectrum
        one = LeaveOneOut.of(gaussians, sums.gram, PRIOR, 0.1, spectrum, rng)
        one = one._replace(sketch=vectors / np.sqrt(values) * math.sqrt(FEATURES))
        alone = one.logits(x, out, head[0], stated=stated)
        if stated:
            moved, out = alone - logits(x, head), posteriors(logits(x, head), shares, PRIOR)
            unsure = np.diag(out.sum(axis=0)) - out.T @ out
    corrected = alone + moved_by_others(moved, unsure, sums.gram)
    anew = []
    for point in range(len(x)):
        anew += [logits(x[point], both(np.arange(len(x)) != point)[1])]

    def far(some: Any) -> float:
        off = some - np.array(anew)
        return float(np.sqrt(np.mean((off - off.mean(axis=1, keepdims=True)) ** 2)))

    assert far(corrected) < 0.5 * far(alone) < 0.5 * far(logits(x, head))


def test_predictions_that_do_not_follow_from_class_shares_are_improbable() -> None:
    rng, sure = np.random.default_rng(0), np.array([[0.9, 0.1], [0.2, 0.8]])
    shares = np.array([[0.25, 0.75], [0.5, 0.5], [0.75, 0.25]])

    def counts(stated: Any) -> Any:
        """Of 40 points a set, with the stated number of each class."""
        numbers = np.rint(40 * stated).astype(int)
        return np.array([[rng.multinomial(n, row) for n, row in zip(one, sure, strict=True)]
                         for one in numbers]).sum(axis=1)  # fmt: skip

    chances = np.array([misfit(shares, counts(shares), sure).chance for _ in range(400)])
    assert (chances < 0.05).mean() < 0.08
    swapped = [misfit(shares[:, ::-1], counts(shares), sure).chance for _ in range(50)]
    assert np.median(swapped) < 1e-3
    # By hand: of one point of class 0, said 0: off = (0.1, -0.1), V = 0.09 [[1, -1], [-1, 1]],
    # V + I has eigenvalues 1 and 1.18, off'(V + I)^-1 off = 0.02 / 1.18; mean 0.18 / 1.18 and
    # variance twice its square: a chi-square of one degree times the mean, at 0.02 / 0.18 = 1 / 9.
    one = misfit(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), sure)
    assert one.chance == pytest.approx(math.erfc(math.sqrt(1 / 18)), rel=1e-6)
    assert one.excess == 0
