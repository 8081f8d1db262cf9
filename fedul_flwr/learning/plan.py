"""The plan of a client's local training in one round, and schedules of its values over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedul_flwr.config.method_settings import StageSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.device import choose_device

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LocalPlan:
    """Plan of a client's local training in one round; fields are settings of the same names.

    ``proximal_mu`` is the weight mu of FedProx's (mu/2)·‖w − w_global‖². With ``heads_only`` the
    last linear layer is trained, and nothing else. ``nesterov`` is the form of SGD's momentum, and
    ``max_gradient_norm`` the largest norm of a step's gradient, 0 for any.
    """

    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    l1: float = 0.0
    augment: str = "none"
    proximal_mu: float = 0.0
    device: torch.device = CPU
    precision: str = "float32"
    noise: float = 0.0
    feature_dropout: float = 0.0
    mixup: float = 0.0
    heads_only: bool = False
    nesterov: bool = False
    max_gradient_norm: float = 0.0


def local_plan(
    settings: RunConfig,
    proximal_mu: float = 0.0,
    stage: tuple[int, int] = (1, 1),
    server_lr_factor: float = 1.0,
) -> LocalPlan:
    """The plan that ``settings`` describe, on this machine.

    Parameters
    ----------
    proximal_mu : weight of the proximal term, as the base strategy sends it.
    stage : number of the round within its training stage, from 1, and the stage's length; by
        default the plan has the step size of the settings.
    server_lr_factor : factor of the step size sent by the server (`plateau`).
    """
    names = LocalPlan.__dataclass_fields__.keys() & type(settings).model_fields.keys()
    values = {name: getattr(settings, name) for name in names}
    values |= {"device": choose_device(settings.device), "precision": precision_of(settings)}
    rate = settings.learning_rate * rate_factor(settings, *stage) * server_lr_factor
    return LocalPlan(**{**values, "learning_rate": rate, "proximal_mu": proximal_mu})


def precision_of(settings: RunConfig) -> str:
    """`precision`, of which `auto` is float32 where the last layer alone is made, often of vectors
    as they are, which bfloat16 would round."""
    updates = settings.precision != "auto" or find_method(settings.method).updates
    return settings.precision if updates else "float32"


def rate_factor(settings: RunConfig, round_of_stage: int, rounds: int) -> float:
    """Factor of step sizes in a round, counted from 1, of a stage of ``rounds`` rounds.

    The factor of `plateau` is not included: it depends on losses, and the server sends it.
    """
    if settings.learning_rate_schedule != "cosine":
        return 1.0
    return cosine(round_of_stage, settings.learning_rate_rounds or rounds)


def ramp_up(server_round: int, rounds: int) -> float:
    """exp(−5·(1 − t)²) for t = ``server_round`` / ``rounds``, 1 from round ``rounds`` on.

    Consistency does not help while predictions are wrong, so its weight starts small: in round 1
    of 10 it is 0.02, in round 5 it is 0.29 (Laine & Aila 2017, appendix A).

    Parameters
    ----------
    server_round : from 1.
    rounds : length of the ramp; 0 for no ramp.
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
    """
    return (1.0 + math.cos(math.pi * (min(server_round, rounds) - 1) / rounds)) / 2


def plateau(losses: Mapping[int, float], patience: int) -> float:
    """3^−d for d divisions, one after each ``patience`` rounds without a new minimum.

    Every division restarts the count (Serra et al. 2018, as in FedMatch, appendix A). A loss that
    is no minimum stands for all rounds since the loss before it, and divides at most once.

    Parameters
    ----------
    losses : validation loss by round, in the order of the rounds; NaN is not a new minimum.
    patience : at least 1.
    """
    least, waited, divisions = math.inf, 0, 0
    last = min(losses, default=1) - 1
    for number, loss in losses.items():
        if loss < least:
            least, waited = loss, 0
        else:
            waited += number - last
        last = number
        if waited >= patience:
            waited, divisions = 0, divisions + 1
    return 1 / 3.0**divisions


def signal_threshold(server_round: int, rounds: int, num_classes: int) -> float:
    """η_t = α_t·(1 − 1/K) + 1/K of training-signal annealing (Xie et al. 2020, section 2.3).

    A labeled point counts as learned if its probability is above this value in (1/K, 1]. With t/T
    for ``server_round`` / ``rounds``, α_t is exp(5(t/T − 1)).

    Parameters
    ----------
    server_round : t, from 1.
    rounds : T.
    num_classes : K.
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
