"""Stages of training: a step size's schedule begins anew in each."""

from __future__ import annotations

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import StageSettings


def training_stage(settings: RunConfig, number: int) -> tuple[int, int]:
    """Number of a round within its stage, from 1, and the stage's length in rounds.

    A method with table ``semi`` has two stages, others have one.

    Parameters
    ----------
    number : the round's number in the run, from 1.
    """
    rounds = settings.num_rounds
    if StageSettings.table not in settings.sections:
        return number, rounds
    first = min(settings[StageSettings].labels_only_rounds, rounds)
    return (number, first) if number <= first else (number - first, rounds - first)
