"""A client's judgment of its own sets: every refusal and warning, and what they do not tell."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.set_priors import (
    ILL_CONDITIONED,
    SetCheck,
    check_sets,
    identifiable_directions,
    stacked_rank,
)

Floats = NDArray[np.float64]
NAMES = ["ward A", "ward B", "ward C", "ward D"]
CLASSES = ["cat", "dog", "owl"]
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
    ("priors", "warning"),
    [
        (ABSENT, "rank 2 of 3 (absent: dog):"),
        (np.array([[0.0, 0, 1]] * 3), "rank 1 of 3 (absent: cat, dog):"),
        (DEPENDENT, "rank 2 of 3:"),
        # With the eigenvalues 1 and 1/1100 its condition is 1100, above 1000; then 900.
        ((1 - 1 / 1100) / 3 + np.eye(3) / 1100, "(1.1e+03)"),
        ((1 - 1 / 900) / 3 + np.eye(3) / 900, ""),
    ],
)
def test_sets_that_tell_little_of_classes_are_warned_about(priors: Floats, warning: str) -> None:
    found = checked(priors)
    assert found.accepted
    assert warning in "".join(found.warnings)
    assert bool(found.warnings) == bool(warning)


REFUSED: dict[str, tuple[Floats, NDArray[np.int64], dict[str, Any], str]] = {
    "class-priors-wrong: negative": (with_row([0.8375, 0.3625, -0.2]), SIZES, {}, "'ward C' .*neg"),
    "class-priors-wrong: barely": (with_row([-1e-12, 0.5, 0.5]), SIZES, {}, "'ward C' .*neg"),
    "class-priors-wrong: nan": (
        with_row([0.8375, np.nan, 0.1625]),
        SIZES,
        {},
        "C' .*non-finite",
    ),
    "class-priors-wrong: sum": (with_row([0.8375, 0.3625, 0.2]), SIZES, {}, "'ward C' .* 1.4, "),
    "too-few-sets": (GOOD[:2], SIZES, {}, "2 .* 3 "),
    "too-few-sets: one": (GOOD[:1], SIZES, {"min_sets": 2}, "it has one set, "),
    "points-missing": (GOOD, np.array([10, 0, 30, 40]), {}, "set 'ward B' "),
    "priors-rank": (DEPENDENT, SIZES, {"strict_rank": True}, "rank 2, .* 3 "),
    "priors-rank: absent": (ABSENT, SIZES, {"strict_rank": True}, "rank 2, .* 3 "),
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
    assert re.search(r"\d[.e]|nan\b|-\d", found.reason.replace("non-finite", "")) is None
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
    assert pair.warnings[0].startswith("class priors have rank 2 of 3: ")


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
