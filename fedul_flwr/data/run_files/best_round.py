"""The round that a run keeps: by validation points, by clients' held-out losses, or the last one.

Validation errors are those under the class priors that the model is trained for: a model for equal
classes does not get better by naming the frequent ones. Held-out losses are of the surrogate task,
which has these priors in its transition.

Held-out losses come from clients, who differ in their data and may lie. Two rounds are therefore
compared client by client: the median of the changes of their losses says which round is better.
Clients' different levels cancel, a client that is missing in one of the rounds does not count in
the comparison, and less than half of the clients cannot decide it. With two clients the median is
the mean, so that either one can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

CRITERION = {
    "validation": "validation_prior_error",
    "balanced": "validation_balanced_error",
    "heldout": "heldout_loss",
    "last": "round",
}
"""Key of a metrics line that selects the best round, by ``selection``."""
LOSSES = "heldout_losses"
"""Key of a metrics line with pairs of a client's number and its held-out loss."""

Line = Mapping[str, Any]
"""A line of ``metrics.jsonl``."""


def criterion_value(line: Line, selection: str) -> float | None:
    """The number of a line that ``selection`` compares; None if it is not there, or not finite.

    Methods that are trained for no class priors have their plain validation error, and so have
    runs of earlier versions.
    """
    key = CRITERION[selection]
    value = line.get(key, line.get("validation_error") if selection == "validation" else None)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def best_line(lines: Sequence[Line], selection: str) -> Line | None:
    """The line of the round that a run keeps of ``lines``; ``None`` if no round was measured.

    Of equal rounds the first is kept. By held-out losses a round takes the place of the one kept so
    far if most clients common to both improve, see :func:`improves`.

    Parameters
    ----------
    lines : in the order of the rounds.
    selection : a key of :data:`CRITERION`.
    """
    found = [(criterion_value(line, selection), line) for line in lines]
    pairs = [(value, line) for value, line in found if value is not None]
    known = [line for _, line in pairs]
    if not known or selection == "last":
        return known[-1] if known else None
    if selection != "heldout":
        return min(pairs, key=lambda pair: pair[0])[1]
    kept = known[0]
    for line in known[1:]:
        if improves(line, kept):
            kept = line
    return kept


def improves(new: Line, kept: Line) -> bool:
    """Whether the median change of clients' held-out losses from ``kept`` to ``new`` is below 0.

    Counts the clients with a loss in both rounds; without any, the kept round stays. Lines of
    earlier versions have no losses of clients: their ``heldout_loss`` is compared.
    """
    if LOSSES not in new or LOSSES not in kept:
        return float(new["heldout_loss"]) < float(kept["heldout_loss"])
    before = dict(kept[LOSSES])
    changes = [loss - before[client] for client, loss in new[LOSSES] if client in before]
    return bool(changes) and median(changes) < 0
