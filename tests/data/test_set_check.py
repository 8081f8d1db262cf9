"""A client's judgment of its own sets: every refusal and warning, and what they do not tell."""

import re

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


def checked(priors: Floats, sizes: NDArray[np.int64] = SIZES, **options: bool) -> SetCheck:
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


@pytest.mark.parametrize("row", [[1.2, -0.2, 0.0], [-1e-12, 0.5, 0.5], [float("nan"), 0.5, 0.5]])
def test_negative_or_non_finite_priors_name_the_set(row: list[float]) -> None:
    found = checked(with_row(row))
    assert not found.accepted
    assert re.search("'ward C' .*negative", found.in_words(NAMES))
    assert found.condition_number == np.inf
    assert found.warnings == ()


@pytest.mark.parametrize("sign", [-1, 1])
def test_rows_must_sum_to_1_within_1e_4(sign: int) -> None:
    inside = checked(with_row([0.2, 0.2, 0.6 + sign * 0.9e-4]))
    assert inside.accepted
    outside = checked(with_row([0.2, 0.2, 0.6 + sign * 1.1e-4], m=1))
    assert all(
        word in outside.in_words(NAMES) for word in ("'ward B'", f" {1 + sign * 1.1e-4:.6g}, ")
    )
    assert "'1'" in outside.reason
    assert "ward" not in outside.reason


def test_each_row_has_its_own_tolerance() -> None:
    priors = with_row([0.2, 0.2, 0.62])
    tolerances = np.array([1e-4, 1e-4, 0.03, 1e-4])
    assert check_sets(priors, SIZES, tolerances=tolerances).accepted
    refused = check_sets(priors, SIZES, tolerances=tolerances[::-1])
    assert all(word in refused.in_words(NAMES) for word in ("'ward C'", " 1.02, "))


def test_an_empty_set_and_fewer_sets_than_classes_are_refused() -> None:
    assert checked(GOOD, np.array([10, 20, 0, 40])).in_words(NAMES).startswith("set 'ward C' ")
    found = checked(GOOD[:2])
    assert re.search("2 .* 3 ", found.reason)
    assert found.num_points == 30


ABSENT = np.array([[0.5, 0, 0.5], [0.2, 0, 0.8], [0.9, 0, 0.1]])
# Row 2 is half of row 0 and row 1 together; every class is present.
DEPENDENT = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.4, 0.3, 0.3]])


def test_absent_classes_are_named_in_a_warning() -> None:
    found = checked(ABSENT)
    assert found.accepted
    assert found.condition_number == np.inf
    assert "rank 2 of 3 (absent: dog):" in found.warnings[0]
    alone = checked(np.array([[0.0, 0, 1]] * 3))
    assert "rank 1 of 3 (absent: cat, dog):" in alone.warnings[0]


@pytest.mark.parametrize("priors", [ABSENT, DEPENDENT], ids=["absent", "dependent"])
def test_strict_rank_refuses_instead_of_warning(priors: Floats) -> None:
    found = checked(priors, strict_rank=True)
    assert re.search("rank 2, .* 3 ", found.reason)
    assert found.warnings == ()
    assert checked(GOOD, strict_rank=True).accepted


@pytest.mark.parametrize(("spread", "warned"), [(1 / 1100, True), (1 / 900, False)])
def test_ill_conditioned_priors_are_warned_about(spread: float, warned: bool) -> None:
    # With the eigenvalues 1 and spread its condition is 1/spread.
    found = checked((1 - spread) / 3 + spread * np.eye(3))
    assert found.accepted
    assert found.condition_number == pytest.approx(1 / spread, rel=1e-6)
    assert bool(found.warnings) == warned


REFUSED = {
    "negative": (with_row([0.8375, 0.3625, -0.2]), SIZES, False),
    "nan": (with_row([0.8375, float("nan"), 0.1625]), SIZES, False),
    "sum": (with_row([0.8375, 0.3625, 0.2]), SIZES, False),
    "few": (GOOD[:2], SIZES, False),
    "empty": (GOOD, np.array([10, 0, 30, 40]), False),
    "rank": (DEPENDENT, SIZES, True),
}


@pytest.mark.parametrize(("priors", "sizes", "strict"), REFUSED.values(), ids=REFUSED)
def test_the_server_is_told_no_value_of_a_prior(
    priors: Floats, sizes: NDArray[np.int64], strict: bool
) -> None:
    reason = checked(priors, sizes, strict_rank=strict).reason
    assert reason
    # Names of sets, M, K and a rank at most: no fractions, no exponents, no names of classes.
    assert re.search(r"\d[.e]|nan\b|-\d", reason.replace("non-finite", "")) is None
    assert not any(name in reason for name in CLASSES)
    assert all(int(number) <= 4 for number in re.findall(r"\d+", reason))


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


def test_with_fewer_sets_allowed_one_set_is_refused() -> None:
    alone = check_sets(GOOD[:1], SIZES[:1], min_sets=2, class_names=CLASSES)
    assert alone.reason.startswith("it has one set, ")
    assert alone.code == "too-few-sets"
    pair = check_sets(GOOD[:2], SIZES[:2], min_sets=2, class_names=CLASSES)
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
