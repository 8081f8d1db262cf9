"""Mean, standard deviation and a paired t-test over seeds, as in the tables of the FedUL paper."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t
from scipy.stats import ttest_rel

LEVEL = 0.05
"""Runs with a p-value of at least this are not told apart from the best; one minus it is the level
of confidence intervals."""


@dataclass(frozen=True)
class Standing:
    """How one run did.

    Attributes
    ----------
    seeds : seeds whose test error is known, in the order given.
    mean : test error in percent over them; None without any.
    std : sample standard deviation (n - 1); None with fewer than two seeds.
    half_width : half of the mean's 95 % confidence interval; None with fewer than two seeds.
    best : whether its mean is the lowest (the first of equals).
    pairs : seeds that the best run has too.
    p_value : of the test against the best over these; None for the best itself and with fewer than
        two pairs.
    marked : whether it is the best or not told apart from it.
    """

    seeds: tuple[int, ...]
    mean: float | None
    std: float | None
    half_width: float | None
    best: bool
    pairs: tuple[int, ...]
    p_value: float | None
    marked: bool


def rank(errors: Mapping[str, Mapping[int, float]]) -> dict[str, Standing]:
    """Compare runs by their test errors.

    Parameters
    ----------
    errors : for every run the known test errors (percent) by seed. Runs need not have the same
        seeds; each is tested over those that it shares with the best.
    """
    means = {name: float(np.mean(list(of.values()))) for name, of in errors.items() if of}
    best = min(means, key=means.__getitem__, default=None)
    standings = {}
    for name, known in errors.items():
        pairs = tuple(seed for seed in known if best is not None and seed in errors[best])
        p_value = None
        if best is not None and name != best and len(pairs) > 1:
            p_value = paired_p_value(
                [known[seed] for seed in pairs], [errors[best][seed] for seed in pairs]
            )
        standings[name] = Standing(
            seeds=tuple(known),
            mean=means.get(name),
            std=float(np.std(list(known.values()), ddof=1)) if len(known) > 1 else None,
            half_width=half_width(list(known.values())),
            best=name == best,
            pairs=pairs,
            p_value=p_value,
            marked=p_value >= LEVEL
            if p_value is not None
            else best is not None and means.get(name) == means[best],
        )
    return standings


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean, by Student's t.

    It is t·s/√n with the 0.975 quantile t of n − 1 degrees of freedom and the sample standard
    deviation s of the n values; None of fewer than two.
    """
    count = len(values)
    if count < 2:
        return None
    quantile = float(student_t.ppf(1 - LEVEL / 2, count - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(count)


def paired_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test on at least two pairs (``scipy.stats.ttest_rel``).

    Where all differences are equal the statistic is 0/0 or infinite: pairs without any difference
    are not told apart (1), those with the same difference everywhere are (0), which is the limit.
    """
    differences = np.subtract(first, second)
    if np.ptp(differences) == 0:
        return 1.0 if differences[0] == 0 else 0.0
    with warnings.catch_warnings():
        # Differences that are equal but for rounding: the value is right, tiny.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_rel(first, second).pvalue)
