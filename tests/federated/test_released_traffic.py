"""FedMatch's traffic to a client as its authors' code counts it, by hand."""

import numpy as np

from fedul_flwr.arrays import Arrays
from fedul_flwr.learning.parts import PSI, SIGMA, THETA
from fedul_flwr.strategies.fedmatch_parts import changed_values

THRESHOLD, CUTOFF = 0.1, 0.05


def part(*values: float) -> Arrays:
    return {"w": np.array(values, dtype=np.float32)}


def test_given_parts_then_differences_above_the_threshold_count() -> None:
    new = {SIGMA: part(0, 0, 0), PSI: part(0, 0, 0)}
    assert changed_values(new, {}, [], THRESHOLD, CUTOFF) == 6
    # Helpers are for later rounds.
    assert changed_values(new, {}, [part(1, 1, 1)], THRESHOLD, CUTOFF) == 6
    held = {SIGMA: part(1.0, 1.0, 1.0), PSI: part(0.5, 0.0, 0.04)}
    new = {SIGMA: part(1.05, 1.2, 0.8), PSI: part(0.5, 0.3, 0.045)}
    # Sigma: 0.2 and −0.2 count, 0.05 does not. Psi: 0.3 counts.
    assert changed_values(new, held, [], THRESHOLD, CUTOFF) == 3
    assert changed_values(held, held, [], 0.0, 0.0) == 0


def test_given_small_values_of_psi_then_they_count_as_zero() -> None:
    held, new = part(0.04, 0.04), part(0.12, -0.04)
    # 0.12 − 0 is above the threshold, 0.12 − 0.04 is not; −0.04 and 0.04 are both 0.
    assert changed_values({SIGMA: new, PSI: new}, {SIGMA: held, PSI: held}, [], 0.1, 0.05) == 1
    # Sigma, or a model that is not decomposed, has no such cutoff.
    assert changed_values({THETA: new}, {THETA: held}, [], 0.07, 0.05) == 2


def test_given_helpers_then_their_values_that_are_not_zero_count() -> None:
    parts = {SIGMA: part(1, 1, 1), PSI: part(0.5, 0.5, 0.5)}
    # The first equals the client's psi, the second is 0 and so free, the third differs.
    helpers = [part(0.5, 0.0, 0.9), part(0.5, 0.04, 0.5)]
    assert changed_values(parts, parts, helpers, THRESHOLD, CUTOFF) == 1
