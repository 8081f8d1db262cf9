"""Schedules of weights of regularizers, step sizes and thresholds over the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedul_flwr.config.method_settings import StageSettings
from fedul_flwr.config.run_config import RunConfig


def ramp_up(server_round: int, rounds: int) -> float:
    """exp(−5·(1 − t)²) for t = ``server_round`` / ``rounds``, 1 from round ``rounds`` on.

    Consistency does not help while predictions are wrong, so its weight starts small: in round 1
    of 10 it is 0.02, in round 5 it is 0.29 (Laine & Aila 2017, appendix A).

    Parameters
    ----------
    server_round : from 1.
    rounds : length of the ramp; 0 for no ramp.

    Examples
    --------
    >>> [round(ramp_up(number, 10), 2) for number in (1, 5, 10)]
    [0.02, 0.29, 1.0]
    """
    if server_round >= rounds:
        return 1.0
    return math.exp(-5.0 * (1.0 - server_round / rounds) ** 2)


def cosine(server_round: int, rounds: int) -> float:
    """(1 + cos(π·(t − 1)/T))/2 for t = ``server_round``, T = ``rounds``: 1 at first, then falling.

    It would reach 0 in round T + 1 (cosine annealing; Loshchilov & Hutter 2017, eq. 5). So that no
    round has a step size of 0, the factor is constant from round T on.

    Parameters
    ----------
    server_round : from 1; counted from the start of a stage if a method restarts the schedule.
    rounds : T, at least 1.

    Examples
    --------
    >>> [round(cosine(number, 10), 2) for number in (1, 6, 10)]
    [1.0, 0.5, 0.02]
    """
    return (1.0 + math.cos(math.pi * (min(server_round, rounds) - 1) / rounds)) / 2


def plateau(losses: Sequence[float], patience: int, factor: float = 3.0) -> float:
    """factor^−d for d divisions, one after each ``patience`` losses without a new minimum.

    Every division restarts the count (Serra et al. 2018, as in FedMatch, appendix A).

    Parameters
    ----------
    losses : validation losses so far, in the order of the rounds; NaN is not a new minimum.
    patience : at least 1.
    factor : divisor of the step size, above 1.

    Examples
    --------
    >>> plateau([1.0, 0.9, 0.95, 0.97], patience=2, factor=2.0)
    0.5
    """
    least, waited, divisions = math.inf, 0, 0
    for loss in losses:
        if loss < least:
            least, waited = loss, 0
        else:
            waited += 1
        if waited == patience:
            waited, divisions = 0, divisions + 1
    return 1 / factor**divisions


def signal_threshold(server_round: int, rounds: int, num_classes: int) -> float:
    """η_t = α_t·(1 − 1/K) + 1/K of training-signal annealing (Xie et al. 2020, section 2.3).

    A labeled point counts as learned if its probability is above this value in (1/K, 1]. With t/T
    for ``server_round`` / ``rounds``, α_t is exp(5(t/T − 1)).

    Parameters
    ----------
    server_round : t, from 1.
    rounds : T.
    num_classes : K.

    Examples
    --------
    >>> round(signal_threshold(5, 10, num_classes=2), 3)
    0.541
    """
    share = math.exp(5.0 * (server_round / rounds - 1.0))
    # The same formula, but exactly 1 for α_t = 1, so that rounding skips no point.
    return 1.0 - (1.0 - share) * (1.0 - 1.0 / num_classes)


def training_stage(settings: RunConfig, number: int) -> tuple[int, int]:
    """Number of a round within its stage, from 1, and the stage's length in rounds.

    A method with table ``semi`` has two stages, others have one.

    Parameters
    ----------
    number : the round's number in the run, from 1.

    Examples
    --------
    >>> from fedul_flwr.config.run_config import parse_flat
    >>> training_stage(parse_flat({"num-rounds": 5}), 2)
    (2, 5)
    """
    rounds = settings.num_rounds
    if StageSettings.table not in settings.sections:
        return number, rounds
    first = min(settings[StageSettings].labels_only_rounds, rounds)
    return (number, first) if number <= first else (number - first, rounds - first)
