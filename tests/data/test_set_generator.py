"""Unlabeled sets dealt out of labeled points: sizes, proportions, overlap, noise, streams."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.data import split as set_generator
from fedul_flwr.data.seeds import derived_seed, stream
from fedul_flwr.data.split import (
    GeneratedSets,
    add_prior_noise,
    draw_priors,
    generate_sets,
    settings_of_client,
)

Ints = NDArray[np.int64]
NUM_CLASSES = 4
LABELS: Ints = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [400, 300, 200, 100]))
EVERY_POINT: Ints = np.arange(1000)


def deal(
    client: int = 0,
    seed: int = 0,
    labels: Ints = LABELS,
    points: Ints = EVERY_POINT,
    num_classes: int = NUM_CLASSES,
    num_clients: int = 1,
    **options: Any,
) -> GeneratedSets:
    values = {"num-sets": 8, **{key.replace("_", "-"): value for key, value in options.items()}}
    chosen = UnlabeledSetSettings.parse(values)
    chosen = settings_of_client(chosen, client, num_clients)
    return generate_sets(labels, points, num_classes, client, chosen, seed)


def same(one: GeneratedSets, other: GeneratedSets) -> bool:
    return np.array_equal(one.points, other.points) and np.array_equal(one.priors, other.priors)


def counts(made: GeneratedSets, labels: Ints = LABELS, num_classes: int = NUM_CLASSES) -> Ints:
    """``(M, K)`` numbers of points, counted one by one."""
    table = np.zeros((len(made.priors), num_classes), dtype=np.int64)
    for point, m in zip(made.points, made.sets, strict=True):
        table[m, labels[point]] += 1
    return table


@pytest.mark.parametrize("overlap", ["disjoint", "shared"])
@pytest.mark.parametrize("priors", ["dominant", "uniform"])
def test_priors_are_the_realized_proportions(overlap: str, priors: str) -> None:
    made = deal(overlap=overlap, priors=priors)
    table = counts(made)
    np.testing.assert_array_equal(made.true_priors, table / table.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(made.priors, made.true_priors)
    assert made.priors.shape == (8, NUM_CLASSES)
    assert made.points.dtype == made.sets.dtype == np.int64
    if overlap == "disjoint":
        np.testing.assert_array_equal(np.sort(made.points), EVERY_POINT)


def test_shared_sets_repeat_no_point_within_a_set() -> None:
    made = deal(overlap="shared")
    for m in range(8):
        inside = made.points[made.sets == m]
        assert len(np.unique(inside)) == len(inside)
    assert len(np.unique(made.points)) < len(made.points)  # but sets do share points


# Two classes of 8 and 4 points and two sets: n / M = 6.
SMALL: Ints = np.array([0] * 8 + [1] * 4)
WEIGHTS = [[0.75, 0.25], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("overlap", "weights", "table", "priors"),
    [
        # Columns sum to 1: class 0 is cut at .75 · 8 = 6, class 1 at .25 · 4 = 1.
        ("disjoint", WEIGHTS, [[6, 1], [2, 3]], [[6 / 7, 1 / 7], [2 / 5, 3 / 5]]),
        # floor(6 · .75) = 4 and floor(6 · .25) = 1 points of the classes, then the reverse.
        ("shared", WEIGHTS, [[4, 1], [1, 4]], [[0.8, 0.2], [0.2, 0.8]]),
        # floor(6 · .95) = 5 points of class 1, of which there are 4; floor(6 · .05) = 0.
        ("shared", [[0.05, 0.95], [0.5, 0.5]], [[0, 4], [3, 3]], [[0, 1], [0.5, 0.5]]),
    ],
)
def test_given_weights_then_sets_of_twelve_points_are_as_by_hand(
    overlap: str, weights: Any, table: Any, priors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_generator, "draw_priors", lambda *_: np.array(weights))
    made = deal(labels=SMALL, points=np.arange(12), num_classes=2, num_sets=2, overlap=overlap)
    np.testing.assert_array_equal(counts(made, SMALL, 2), table)
    np.testing.assert_allclose(made.priors, priors)


def test_more_sets_than_points_leave_sets_empty_with_priors_of_zero() -> None:
    made = deal(points=EVERY_POINT[:5], num_sets=8)
    sizes = np.bincount(made.sets, minlength=8)
    assert len(made.points) == 5
    assert (sizes == 0).any()
    assert (made.priors[sizes == 0] == 0).all()
    np.testing.assert_allclose(made.priors[sizes > 0].sum(axis=1), 1)


@pytest.mark.parametrize("overlap", ["disjoint", "shared"])
def test_the_order_within_a_set_tells_nothing_of_classes(overlap: str) -> None:
    # Sets are put together class by class; stored like that, the order alone would label them.
    made = deal(overlap=overlap, priors="uniform", num_sets=2)
    for m in range(2):
        inside = made.points[made.sets == m]
        labels = LABELS[inside]
        runs = 1 + np.count_nonzero(np.diff(labels))
        assert runs > len(labels) / 2  # 4 if sorted; about 0.7 n for classes .4, .3, .2, .1
        assert (np.diff(inside) < 0).any()


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [((10, 50), [10, 20, 30, 40, 50]), ((5, 7), [5, 6, 6, 6, 7]), ((4, 4), [4] * 5), ((6, 9), [6])],
)
def test_numbers_of_sets_in_equal_steps(ends: tuple[int, int], numbers: list[int]) -> None:
    """Table E.12's clients have 10, 20, 30, 40, 50 sets; a step that is no whole number rounds."""
    spread = {"num_sets": ends[0], "num_sets_max": ends[1]}
    made = [deal(client=c, num_clients=len(numbers), **spread) for c in range(len(numbers))]
    assert [len(one.priors) for one in made] == numbers
    again = deal(client=0, num_clients=len(numbers), seed=1, **spread)
    assert len(again.priors) == numbers[0]  # no seed decides


def test_clients_with_the_same_priors() -> None:
    shares = [deal(client=client, shared_prior_draws=1) for client in (0, 1)]
    # Equal pools dealt by equal weights: the same proportions from different points.
    np.testing.assert_array_equal(shares[0].true_priors, shares[1].true_priors)
    assert not np.array_equal(shares[0].points, shares[1].points)
    others = [deal(client=client).true_priors for client in (0, 1)]
    assert not np.array_equal(others[0], others[1])
    again = deal(client=0, seed=1, shared_prior_draws=1).true_priors
    assert not np.array_equal(again, shares[0].true_priors)


def test_dominant_priors_as_in_the_authors_code() -> None:
    # U[0.1, 1] with entry m mod K times 10, rows normalized.
    draw = np.random.default_rng(5).uniform(0.1, 1.0, (7, 3))
    for m in range(7):
        draw[m, m % 3] *= 10
    expected = draw / draw.sum(axis=1)[:, None]
    found = draw_priors(7, 3, "dominant", np.random.default_rng(5))
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(found.argmax(axis=1), np.arange(7) % 3)


@pytest.mark.parametrize(
    ("epsilon", "gamma", "expected"),
    [
        # 1 + .4 (2 gamma - 1): [1.4, .6], [1, .8]. Row 0: .7, .3. Row 1: .2, .64 over .84.
        (0.4, [[1.0, 0.0], [0.5, 0.25]], [[0.7, 0.3], [0.2 / 0.84, 0.64 / 0.84]]),
        # 1 + 1.6 (2 gamma - 1) = -.6 and 2.6. Row 0: -.3 and 1.3 become 0 and 1; row 1: -.12 and
        # 2.08.
        (1.6, [[0.0, 1.0], [0.0, 1.0]], [[0, 1], [0, 1]]),
        # Row 0: twice 1.3 becomes 1. Without clipping row 1 would be (.52, 2.08) / 2.6 = (.2, .8).
        (1.6, [[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5], [0.52 / 1.52, 1 / 1.52]]),
        # Factors -.6 and 1: a row that is clipped to nothing stays.
        (1.6, [[0.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]),
    ],
)
def test_given_symmetric_noise_then_priors_are_as_by_hand(
    epsilon: float, gamma: Any, expected: Any
) -> None:
    class Fixed:
        def random(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
            assert shape == (2, 2)
            return np.array(gamma)

    rng: Any = Fixed()
    found = add_prior_noise(np.array([[0.5, 0.5], [0.2, 0.8]]), epsilon, rng)
    np.testing.assert_allclose(found, expected)


def test_noise_changes_what_a_client_is_told_and_nothing_else() -> None:
    exact, told = deal(), deal(prior_noise=0.8)
    np.testing.assert_array_equal(told.points, exact.points)
    np.testing.assert_array_equal(told.sets, exact.sets)
    np.testing.assert_array_equal(told.true_priors, exact.true_priors)
    assert np.abs(told.priors - exact.priors).max() > 0.01
    assert same(told, deal(prior_noise=0.8))


def test_streams_differ_by_seed_purpose_and_index() -> None:
    keys: list[tuple[Any, ...]] = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2)]
    keys += [(0, "a", 1, 1), (0, "a", 1, 2), (0, "a", 2, 1)]
    draws = [stream(*key).random() for key in keys]
    assert len(set(draws)) == len(keys)
    assert draws == [stream(*key).random() for key in keys]
    seeds = {derived_seed(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_priors_from_labels_are_the_posterior_of_labels_drawn_from_each_set() -> None:
    exact, told = deal(), deal(prior_counts=20)
    np.testing.assert_array_equal(exact.points, told.points)
    np.testing.assert_array_equal(exact.true_priors, told.true_priors)
    # 20 labels and 1/2 for each of 4 classes: (count + 1/2) / 22.
    found = told.priors * 22 - 0.5
    np.testing.assert_allclose(found, found.round(), atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 20)
    assert (found.round() <= counts(told)).all()
    assert told.posterior.means is told.priors
    assert (told.posterior.concentrations == 22).all()
    assert same(told, deal(prior_counts=20))
    assert not np.array_equal(told.priors, deal(prior_counts=20, seed=1).priors)


def test_the_strength_of_noise_is_stated_as_the_labels_that_are_as_uncertain() -> None:
    weak, strong = deal(prior_noise=0.4), deal(prior_noise=1.6)
    assert np.ptp(strong.posterior.concentrations) < 1e-9  # one strength for all of its sets
    assert 2 < strong.posterior.concentrations[0] < weak.posterior.concentrations[0]
    # The Dirichlet distribution of so many labels varies about as much as the noise did.
    worth = weak.posterior.concentrations[0] - 2  # without Jeffreys' prior of 4 classes
    rng = np.random.default_rng(0)
    draws = [add_prior_noise(weak.true_priors, 0.4, rng) for _ in range(300)]
    ratios = [((draw - weak.true_priors) ** 2 / weak.true_priors).sum(axis=1) for draw in draws]
    assert 3 / (worth + 1) == pytest.approx(np.median(np.mean(ratios, axis=0)), rel=0.1)
    # The paper's zeros stay in what plain FedUL trains with, and can be learned otherwise.
    assert (strong.posterior.means > 0).all()
