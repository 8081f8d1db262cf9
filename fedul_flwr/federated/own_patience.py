"""`plateau` at each client: step sizes from the losses it received (FedMatch's released code)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.messages import VALIDATED_ROUND, VALIDATION_LOSS
from fedul_flwr.learning.schedules import plateau

COUNTED = "validation-losses"
"""Name under which a client stores the losses that it has counted, and their rounds."""


def own_rate_factor(
    settings: RunConfig,
    state: ClientState,
    told: Mapping[str, Any],
    server_round: int,
    stage_start: int,
) -> float:
    """Factor of a client's step size, from the losses that it has received so far.

    Counts the loss in this round's message, except in a client's first round: in the authors' code
    a client in its k-th round has seen k − 1 losses. A loss that was counted before
    (`evaluate-every` above 1) does not count again.

    Parameters
    ----------
    state : the client's state, which stores the losses for its next round.
    told : values of the message: the latest validation loss and its round, if there is one.
    server_round : the current round, from 1.
    stage_start : first round whose loss counts; each training stage starts a new count.
    """
    kept = state.load(COUNTED, server_round)
    rounds = kept.get("rounds", np.zeros(0, np.int64))
    losses = kept.get("losses", np.zeros(0))
    if kept and VALIDATED_ROUND in told and told[VALIDATED_ROUND] not in rounds:
        rounds = np.append(rounds, np.int64(told[VALIDATED_ROUND]))
        losses = np.append(losses, told[VALIDATION_LOSS])
    state.save(COUNTED, server_round, {"rounds": rounds, "losses": losses})
    counted = losses[rounds >= stage_start].tolist()
    return plateau(counted, settings.learning_rate_patience, settings.learning_rate_factor)
