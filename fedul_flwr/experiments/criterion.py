"""The measure by which the trials of a search are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.records import Line, best_line, criterion_value
from fedul_flwr.errors import UserError

Name = Literal["validation", "balanced", "heldout"]

_LOSSES = ("loss", "surrogate_loss", "heldout_loss", "validation_loss")


@dataclass(frozen=True)
class Criterion:
    """The measure by which trials are compared.

    ``validation`` is the error on the server's labeled validation points in percent, for methods
    like FedUL under the class priors that they train for, and ``balanced`` its mean over classes;
    ``heldout`` is the loss on the clients' held-out unlabeled sets. ``selection`` is the criterion
    by which a run chooses its round: one of these, or ``last``.
    """

    name: Name
    selection: str

    def text(self, value: float) -> str:
        """A value for messages."""
        if self.name == "validation":
            return f"validation error {value:.2f} %"
        if self.name == "balanced":
            return f"balanced validation error {value:.2f} %"
        return f"held-out loss {value:.4f}"

    def settings(self) -> dict[str, Scalar]:
        """Settings of every trial: it takes the measure, and it does not measure the test error."""
        measured = "heldout" if self.name == "heldout" else self.selection
        return {"selection": measured, "measure-test-error": False}

    def measures(self, line: Line) -> bool:
        """Whether a line of ``metrics.jsonl`` has the measure."""
        return criterion_value(line, self.name) is not None

    def chosen(self, lines: Sequence[Line]) -> tuple[int, float] | None:
        """The round that a run keeps of the rounds so far, and the measure in it.

        It is None if no round was measured. Of equal rounds a run keeps the first.
        """
        measured = [line for line in lines if self.measures(line)]
        best = best_line(measured, self.selection)
        value = None if best is None else criterion_value(best, self.name)
        return None if best is None or value is None else (int(best["round"]), value)


def make_criterion(name: Name, settings: RunConfig, trial: RunConfig) -> Criterion:
    """Make the criterion ``name`` for a row; ``trial`` has what the search sets for all trials.

    A run that keeps its last round is measured in its last round. With ``heldout`` other runs
    choose their round by the held-out loss, so that the choice uses no label; with ``balanced``
    runs that would choose it by validation error do so by the balanced one.
    """
    from fedul_flwr.run.resolve_settings import choose_selection

    method = find_method(settings.method)
    if not method.trains:
        raise UserError(
            f"Method {settings.method!r} does not train, so it has no settings to search.",
            "nothing-to-search",
        )
    can_hold_out = method.strategy_class.can_hold_out
    if name != "heldout" and not _validates(trial):
        raise UserError(
            "There are no validation points: set validation-fraction above 0 in the experiment, or "
            "in [settings] of the search, which applies to its trials alone.",
            "setting-needs-labels",
        )
    if name == "heldout" and not can_hold_out:
        raise UserError(
            f"Method {settings.method!r} has no held-out loss: search it with --criterion "
            "validation.",
            "method-mismatch",
        )
    chosen = choose_selection(settings, can_hold_out, has_validation=_validates(settings))
    by_validation = name == "balanced" and chosen == "validation"
    replaced = by_validation or (name == "heldout" and chosen != "last")
    return Criterion(name, name if replaced else chosen)


def _validates(config: RunConfig) -> bool:
    return config.validation_fraction > 0 and config.dataset != "none"


def is_diverged(line: Line) -> bool:
    """Whether a loss of a round is infinite or NaN."""
    values = [line.get(key) for key in _LOSSES]
    return any(isinstance(value, float) and not math.isfinite(value) for value in values)
