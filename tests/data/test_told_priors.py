"""Class priors as owners write them, as Dirichlet distributions; and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import dirichlet

from fedul_flwr.data.local_data import StatedPriors, read_stated_priors, sum_tolerance
from fedul_flwr.data.set_priors import Dirichlet, effective_labels

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


def test_intervals_vary_as_uniform_distributions() -> None:
    # Midpoints 0.2, 0.35, 0.45: (0.04 / 0.2 + 0.01 / 0.35 + 0.09 / 0.45) / 12 = 0.0357143;
    # 2 / 0.0357143 − 1 = 55.
    low, high = np.array([[0.1, 0.3, 0.3]]), np.array([[0.3, 0.4, 0.6]])
    assert Dirichlet.from_intervals(low, high).concentrations[0] == pytest.approx(55)


def test_intervals_that_exclude_nothing_are_worth_at_least_jeffreys_prior() -> None:
    # (1 + 1) / 0.5 / 12 = 1/3; 1 / (1/3) − 1 = 2, above 2 · 1/2.
    assert Dirichlet.from_intervals(np.zeros((1, 2)), np.ones((1, 2))).concentrations[0] == (
        pytest.approx(2.0)
    )
    # 10 · (1 / 0.1) / 12 = 8.33; 9 / 8.33 − 1 = 0.08, below 10 · 1/2.
    assert Dirichlet.from_intervals(np.zeros((1, 10)), np.ones((1, 10))).concentrations[0] == 5.0


def test_noise_counts_as_labels_with_jeffreys_prior() -> None:
    # 20 labels, of which 14 and 6, and 1/2 for each class.
    found = Dirichlet.from_noise(np.array([[0.7, 0.3]]), 20.0)
    np.testing.assert_allclose(found.means[0], [14.5 / 21, 6.5 / 21])
    assert found.concentrations[0] == pytest.approx(21)
    assert Dirichlet.from_noise(np.array([[1.0, 0.0]]), 20.0).means[0, 1] > 0
