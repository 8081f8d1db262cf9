"""Class priors of sets: as owners write them, checks of them, and from a model's posteriors."""

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import dirichlet

from fedul_flwr.data.local_data import StatedPriors, read_stated_priors, sum_tolerance
from fedul_flwr.data.set_priors import (
    ILL_CONDITIONED,
    POOR_FIT,
    Dirichlet,
    SetCheck,
    check_fit,
    check_sets,
    effective_labels,
    identifiable_directions,
    learn_priors,
    log_likelihoods,
    misfits_in_words,
    set_likelihoods,
    stacked_rank,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CLASSES = ["cat", "dog", "owl"]


def read(folder: Path, text: str, name: str = "priors.csv") -> StatedPriors:
    (folder / name).write_text("set,cat,dog,owl\n" + text)
    return read_stated_priors(folder, CLASSES)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["0.333", "0.333", "0.333"], 0.0015),  # 3 · 0.5 · 10^-3
        (["0.33", "0.333", "0.3"], 0.0015),  # by the cell with most decimals
        (["0.10", "0.2", "0.7"], 0.015),  # a written zero counts
        (["0.3", "0.3", "0.3"], 0.05),  # 0.15 at most 0.05
        (["1", "0", "0"], 0.05),  # 1.5 at most 0.05
        (["0.333333", "0.333333", "0.333333"], 1e-4),  # 1.5e-6 at least 1e-4
        (["3e-3", "0.99", "0"], 0.0015),
    ],
)
def test_the_tolerance_is_what_rounding_to_the_written_decimals_explains(
    cells: list[str], expected: float
) -> None:
    assert sum_tolerance(cells) == pytest.approx(expected, rel=1e-12)


def test_rounded_rows_are_divided_by_their_sum_and_the_owner_is_told(tmp_path: Path) -> None:
    told = read(tmp_path, "a,0.333,0.333,0.333\nb,0.5,0.25,0.25\nc,0.7,0.2,0.1\n")
    np.testing.assert_allclose(told.posterior.means[0], [1 / 3] * 3, rtol=1e-15)
    assert told.posterior.means[1].tolist() == [0.5, 0.25, 0.25]
    # A row that sums to 1 up to floating point keeps every bit.
    assert 0.7 + 0.2 + 0.1 != 1.0
    assert told.posterior.means[2].tolist() == [0.7, 0.2, 0.1]
    assert told.posterior.concentrations.tolist() == [np.inf] * 3
    assert "1 of 3 sets" in told.notes[0]


def test_a_row_off_by_exactly_its_tolerance_is_taken_as_rounded(tmp_path: Path) -> None:
    (tmp_path / "priors.csv").write_text("set,ill,well\na,0.667,0.334\n")
    assert abs(0.667 + 0.334 - 1) > sum_tolerance(["0.667", "0.334"])  # by floating point alone
    told = read_stated_priors(tmp_path, ["ill", "well"])
    np.testing.assert_allclose(told.posterior.means[0], [0.667 / 1.001, 0.334 / 1.001])


def test_counts_give_the_posterior_mean_under_jeffreys_prior(tmp_path: Path) -> None:
    told = read(tmp_path, "a,14,4,2\nb,0,0,0\n", "counts.csv")
    # (14 + 1/2) / (20 + 3/2), and so on; without labels all classes are equally likely.
    np.testing.assert_allclose(told.posterior.means[0], np.array([14.5, 4.5, 2.5]) / 21.5)
    np.testing.assert_allclose(told.posterior.means[1], [1 / 3] * 3)
    assert told.posterior.concentrations.tolist() == [21.5, 1.5]
    assert told.file == "counts.csv"


def test_counts_of_all_points_of_a_set_are_exact(tmp_path: Path) -> None:
    told = read(tmp_path, "a,14,4,2\nb,14,4,2\n", "counts.csv").with_sizes(np.array([20, 21]))
    assert told.posterior.means[0].tolist() == [0.7, 0.2, 0.1]
    np.testing.assert_allclose(told.posterior.means[1], np.array([14.5, 4.5, 2.5]) / 21.5)
    assert told.posterior.concentrations.tolist() == [np.inf, 21.5]


def test_intervals_give_normalized_midpoints_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    told = read(tmp_path, "a,0.2-0.4,0.1 - 0.3,0.5-.7\nb,0.5,0.3,0.2\n")
    # Midpoints 0.3, 0.2, 0.6 sum to 1.1. Variances 0.2² / 12 = 1/300 each; Σ 1/t =
    # 1.1 · (1/0.3 + 1/0.2 + 1/0.6) = 11; 2 / (11/300) − 1 = 53.545455.
    np.testing.assert_allclose(told.posterior.means[0], np.array([0.3, 0.2, 0.6]) / 1.1)
    assert told.posterior.concentrations[0] == pytest.approx(53.545455, rel=1e-6)
    assert told.posterior.concentrations[1] == np.inf
    assert told.notes == ("the intervals of set 'a' are worth 53.5 labels",)


def test_the_variances_of_a_dirichlet_distribution_give_its_concentration() -> None:
    alpha = np.array([[3.0, 5.0, 2.0, 0.5], [40.0, 1.0, 7.0, 2.0]])
    means = alpha / alpha.sum(axis=1, keepdims=True)
    variances = np.array([dirichlet(row).var() for row in alpha])
    np.testing.assert_allclose(effective_labels(means, variances), [10.5, 50.0])
    # A class that cannot occur does not count.
    wider = (np.hstack([array, np.zeros((2, 1))]) for array in (means, variances))
    np.testing.assert_allclose(effective_labels(*wider), [10.5, 50.0])


@pytest.mark.parametrize(
    ("low", "high", "worth"),
    [
        # Midpoints 0.2, 0.35, 0.45: (0.04 / 0.2 + 0.01 / 0.35 + 0.09 / 0.45) / 12 = 0.0357143;
        # 2 / 0.0357143 - 1 = 55.
        ([0.1, 0.3, 0.3], [0.3, 0.4, 0.6], 55),
        # (1 + 1) / 0.5 / 12 = 1/3; 1 / (1/3) - 1 = 2, above 2 · 1/2.
        ([0, 0], [1, 1], 2),
        # 10 · (1 / 0.1) / 12 = 8.33; 9 / 8.33 - 1 = 0.08, below 10 · 1/2: Jeffreys' prior.
        ([0] * 10, [1] * 10, 5),
    ],
)
def test_intervals_vary_as_uniform_distributions(low: Any, high: Any, worth: float) -> None:
    found = Dirichlet.from_intervals(np.array([low], float), np.array([high], float))
    assert found.concentrations[0] == pytest.approx(worth)


def test_noise_counts_as_labels_with_jeffreys_prior() -> None:
    # 20 labels, of which 14 and 6, and 1/2 for each class.
    found = Dirichlet.from_noise(np.array([[0.7, 0.3]]), 20.0)
    np.testing.assert_allclose(found.means[0], [14.5 / 21, 6.5 / 21])
    assert found.concentrations[0] == pytest.approx(21)
    assert Dirichlet.from_noise(np.array([[1.0, 0.0]]), 20.0).means[0, 1] > 0


NAMES = ["ward A", "ward B", "ward C", "ward D"]
GOOD = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.4, 0.3, 0.3]])
SIZES = np.array([10, 20, 30, 40])


def checked(priors: Floats, sizes: NDArray[np.int64] = SIZES, **options: Any) -> SetCheck:
    sizes = sizes[: len(priors)]
    return check_sets(priors, sizes, class_names=CLASSES, **options)


def with_row(row: list[float], m: int = 2) -> Floats:
    priors = GOOD.copy()
    priors[m] = row
    return priors


def test_good_sets_are_accepted() -> None:
    found = checked(GOOD)
    assert found.accepted
    assert (found.reason, found.warnings) == ("", ())
    assert (found.num_sets, found.num_points) == (4, 100)
    assert found.condition_number == pytest.approx(np.linalg.cond(GOOD), rel=1e-12)
    assert found.condition_number < ILL_CONDITIONED
    assert checked(GOOD, strict_rank=True).accepted


@pytest.mark.parametrize("sign", [-1, 1])
def test_each_row_sums_to_1_within_its_tolerance_of_1e_4_by_default(sign: int) -> None:
    assert checked(with_row([0.2, 0.2, 0.6 + sign * 0.9e-4])).accepted
    outside = checked(with_row([0.2, 0.2, 0.6 + sign * 1.1e-4], m=1))
    assert "'1'" in outside.reason
    assert f" {1 + sign * 1.1e-4:.6g}, " in outside.in_words(NAMES)
    priors = with_row([0.2, 0.2, 0.6 + sign * 0.02])
    tolerances = np.array([1e-4, 1e-4, 0.03, 1e-4])
    assert check_sets(priors, SIZES, tolerances=tolerances).accepted
    assert not check_sets(priors, SIZES, tolerances=tolerances[::-1]).accepted


ABSENT = np.array([[0.5, 0, 0.5], [0.2, 0, 0.8], [0.9, 0, 0.1]])
# Row 2 is half of row 0 and row 1 together; every class is present.
DEPENDENT = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.4, 0.3, 0.3]])


@pytest.mark.parametrize(
    ("priors", "rank", "warning"),
    [
        (ABSENT, 2, "(no set has a point of: dog)"),
        (np.array([[0.0, 0, 1]] * 3), 1, "(no set has a point of: cat, dog)"),
        (DEPENDENT, 2, "alike"),
        # With the eigenvalues 1 and 1/1100 its condition is 1100, above 1000; then 900.
        ((1 - 1 / 1100) / 3 + np.eye(3) / 1100, 3, " 1.1e+03 "),
        ((1 - 1 / 900) / 3 + np.eye(3) / 900, 3, ""),
    ],
)
def test_sets_that_tell_little_of_classes_are_warned_about(
    priors: Floats, rank: int, warning: str
) -> None:
    found = checked(priors)
    assert found.accepted
    assert found.rank == rank
    assert warning in "".join(found.warnings)
    assert bool(found.warnings) == bool(warning)


REFUSED: dict[str, tuple[Floats, NDArray[np.int64], dict[str, Any], str]] = {
    "class-priors-wrong: negative": (with_row([0.8375, 0.3625, -0.2]), SIZES, {}, "'ward C' .*neg"),
    "class-priors-wrong: barely": (with_row([-1e-12, 0.5, 0.5]), SIZES, {}, "'ward C' .*neg"),
    "class-priors-wrong: nan": (
        with_row([0.8375, np.nan, 0.1625]),
        SIZES,
        {},
        "C' .*no number",
    ),
    "class-priors-wrong: sum": (with_row([0.8375, 0.3625, 0.2]), SIZES, {}, "'ward C' .* 1.4, "),
    "too-few-sets": (GOOD[:2], SIZES, {}, "2 .* 3 "),
    "too-few-sets: one": (GOOD[:1], SIZES, {"min_sets": 2}, "it has one set, "),
    "points-missing": (GOOD, np.array([10, 0, 30, 40]), {}, "set 'ward B' "),
    "priors-rank": (DEPENDENT, SIZES, {"strict_rank": True}, "3 classes .*rank 2"),
    "priors-rank: absent": (ABSENT, SIZES, {"strict_rank": True}, "3 classes .*rank 2"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_sets_are_refused_and_the_server_is_told_no_value_of_a_prior(kind: str) -> None:
    priors, sizes, options, words = REFUSED[kind]
    found = checked(priors, sizes, **options)
    assert not found.accepted
    assert (found.code, found.warnings) == (kind.partition(":")[0], ())
    assert found.condition_number == np.inf
    assert re.search(words, found.in_words(NAMES))
    # Numbers of sets, M, K and a rank at most: no fractions, no exponents, no names.
    assert re.search(r"\d[.e]|nan\b|-\d", found.reason) is None
    assert not any(name in found.reason for name in (*CLASSES, "ward"))
    assert all(int(number) <= 4 for number in re.findall(r"\d+", found.reason))


def gram(priors: Floats) -> Floats:
    return priors.T @ priors


@pytest.mark.parametrize("seed", range(3))
def test_a_class_that_follows_another_is_found_in_the_stack(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = []
    for _ in range(3):
        priors = rng.dirichlet(np.ones(10), 10)
        priors[:, 4] = 2 * priors[:, 7]  # in the same proportion in all sets of all clients
        clients.append(priors / priors.sum(axis=1, keepdims=True))
    assert stacked_rank([gram(priors) for priors in clients]) == 9
    assert np.linalg.matrix_rank(np.vstack(clients)) == 9


def test_with_fewer_sets_allowed_two_are_enough() -> None:
    pair = checked(GOOD[:2], min_sets=2)
    assert pair.accepted
    assert (pair.rank, len(pair.warnings)) == (2, 1)
    assert "no set has" not in pair.warnings[0]  # each class has points


SYMMETRIC = np.eye(4) * 0.6 + 0.1


@pytest.mark.parametrize(
    ("clients", "rank", "directions"),
    [
        ([GOOD], 3, 2),
        ([GOOD[:2]], 2, 1),  # two sets give one ratio of posteriors, not two
        ([np.stack([GOOD[0], GOOD[1], (GOOD[0] + GOOD[1]) / 2])], 2, 1),
        ([GOOD[0:1], GOOD[1:2], GOOD[2:3]], 3, 0),  # one set each tells nothing
        ([GOOD[:2], GOOD[1:3]], 3, 2),
        ([GOOD[:2], GOOD[:2]], 2, 1),
        ([SYMMETRIC[:2], SYMMETRIC[2:]], 4, 2),  # two ratios of four classes' three
        ([SYMMETRIC[:2], SYMMETRIC[2:], SYMMETRIC[[0, 2]]], 4, 3),
    ],
)
def test_directions_are_ratios_within_clients(
    clients: list[Floats], rank: int, directions: int
) -> None:
    assert stacked_rank([gram(priors) for priors in clients]) == rank
    assert identifiable_directions(clients) == directions


CENTERS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])


def sample(priors: Floats, size: int, seed: int) -> tuple[Floats, Ints]:
    """Sets of ``size`` points of three normal distributions; p(x | k) and the set of each."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(len(priors)), size)
    classes = np.array([rng.choice(3, p=priors[m]) for m in sets])
    points = CENTERS[classes] + rng.normal(size=(len(sets), 2))
    squares = ((points[:, None] - CENTERS) ** 2).sum(axis=2)
    return np.exp(-squares / 2), sets


def test_one_step_by_hand() -> None:
    # Set 0: priors 1/2, 1/2. Point 0 has p(x | k) = 3, 1: shares 3/4, 1/4. Point 1 has 1, 4:
    # shares 1/5, 4/5. With 2 labels told as 1/4, 3/4: (0.95 + 0.5, 1.05 + 1.5) / 4.
    likelihoods = np.array([[3.0, 1.0], [1.0, 4.0], [1.0, 1.0]])
    told = Dirichlet(np.array([[0.25, 0.75], [0.9, 0.1]]), np.array([2.0, np.inf]))
    start = np.array([[0.5, 0.5], [0.2, 0.8]])
    found = learn_priors(likelihoods, np.array([0, 0, 1]), start, told)
    np.testing.assert_allclose(found[0], [1.45 / 4, 2.55 / 4])
    assert found[1].tolist() == [0.9, 0.1]


def test_the_test_prior_divides_the_posterior() -> None:
    posterior = np.array([[0.6, 0.4]])
    assert set_likelihoods(posterior, None) is posterior
    np.testing.assert_allclose(set_likelihoods(posterior, np.array([0.75, 0.25])), [[0.8, 1.6]])


def test_a_set_without_points_keeps_its_priors() -> None:
    told = Dirichlet(np.array([[0.3, 0.7], [0.5, 0.5]]), np.array([0.0, 0.0]))
    for empty in (0, 1):
        found = learn_priors(np.array([[1.0, 1.0]]), np.array([1 - empty]), told.means, told)
        np.testing.assert_allclose(found[empty], told.means[empty])
    assert log_likelihoods(np.array([[1.0, 0.0]]), np.array([0]), told.means)[1] == 0
    likelihoods, sets = certain([[2, 4], [2, 4], [0, 0]])
    uniform = np.full((3, 2), 0.5)
    # 2·(2 ln 2/3 + 4 ln 4/3) = 0.680 for two sets, whose median is that: 0.680 / 0.455.
    fit = check_fit(likelihoods, sets, Dirichlet.exact(uniform))
    assert fit.p_values[2] == 1
    assert fit.inflation == pytest.approx(0.680 / 0.455, rel=1e-3)


def test_a_row_that_is_known_to_be_uncertain_may_be_wrong_by_as_much() -> None:
    truth = np.full((5, 3), 1 / 3)
    likelihoods, sets = sample(truth, 1000, 5)
    told = truth.copy()
    told[2] = [0.5, 0.3, 0.2]
    worth = np.full(5, np.inf)
    assert check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits[2]
    worth[2] = 20  # a standard error of 0.11
    assert not check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits[2]
    # Of 60 labels 54 in a class of a third of the points: what is told is far from the data,
    # although the class priors that fit both best are close to the data.
    told[2], worth[2] = [0.9, 0.05, 0.05], 60
    misfits = check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits
    assert np.flatnonzero(misfits).tolist() == [2]


def certain(counts: list[list[int]]) -> tuple[Floats, Ints]:
    """A model that is sure of every point: so many points of each class in each set."""
    classes = np.concatenate([np.repeat(np.arange(len(row)), row) for row in counts])
    return np.eye(len(counts[0]))[classes], np.repeat(np.arange(len(counts)), np.sum(counts, 1))


def test_p_values_by_hand() -> None:
    # Of 9 points 6, 3 and 0 where a third of each was told: 2·(6 ln 2 + 3 ln 1) = 12 ln 2. With two
    # degrees of freedom the p-value is exp(-6 ln 2) = 1/64. The other sets are as told.
    likelihoods, sets = certain([[3, 3, 3], [6, 3, 0], [3, 3, 3]])
    fit = check_fit(likelihoods, sets, Dirichlet.exact(np.full((3, 3), 1 / 3)))
    np.testing.assert_allclose(fit.p_values, [1, 1 / 64, 1])
    np.testing.assert_allclose(fit.shares[1], [2 / 3, 1 / 3, 0])
    assert fit.inflation == 1


def test_p_values_of_uncertain_priors_by_hand() -> None:
    # Told are halves, worth 12 labels, and no third class. Of 12 points 12 are of class 0. The row
    # between is (12 + 6, 6, 0) / 24 = (3/4, 1/4, 0), and the penalty per label
    # (ln 2/3 + ln 2)/2 = ln(4/3)/2. So 2·(12 ln 4/3 + 12 ln(4/3)/2) = 36 ln 4/3, whose p-value is
    # (3/4)^18.
    likelihoods, sets = certain([[12, 0, 0], [6, 6, 0], [6, 6, 0], [6, 6, 0], [3, 3, 6]])
    told = np.tile([0.5, 0.5, 0.0], (5, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a class that is told to be absent divides by nothing
        fit = check_fit(likelihoods, sets, Dirichlet(told, np.full(5, 12.0)))
    np.testing.assert_allclose(fit.p_values[:4], [0.75**18, 1, 1, 1], rtol=0.01)


def test_where_all_sets_misfit_as_much_chance_is_taken_to_be_larger() -> None:
    # Statistics are 12 ln 2 each, six times the median 2 ln 2 of chi squares of two degrees of
    # freedom. So the p-value is that of this median.
    likelihoods, sets = certain([[6, 3, 0], [3, 6, 0], [0, 3, 6]])
    fit = check_fit(likelihoods, sets, Dirichlet.exact(np.full((3, 3), 1 / 3)))
    assert fit.inflation == pytest.approx(6)
    np.testing.assert_allclose(fit.p_values, [0.5] * 3)


def test_if_most_priors_are_wrong_none_stands_out_and_the_owner_is_told_so() -> None:
    truth = np.tile([[0.8, 0.1, 0.1]], (6, 1))
    likelihoods, sets = sample(truth, 500, 7)
    told = Dirichlet.exact(np.roll(truth, 1, axis=1))
    fit = check_fit(likelihoods, sets, told)
    assert not fit.misfits.any()
    (line,) = misfits_in_words(fit, told, list("abcdef"), list("xyz"))
    assert "of most sets" in line
    assert f"{fit.inflation:.0f} times" in line
    just_good = replace(fit, inflation=POOR_FIT)
    assert list(misfits_in_words(just_good, told, list("abcdef"), list("xyz"))) == []
