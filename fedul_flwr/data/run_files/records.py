"""What a run writes of its rounds and clients: lines, failed clients, the best round.

The best round is chosen by validation errors under the class priors that the model is trained for
(a model for equal classes does not get better by naming the frequent ones), or by held-out losses,
which are losses of the surrogate task and have these priors in its transition.

Held-out losses come from clients, who differ in their data and may lie. Two rounds are therefore
compared client by client: the median of the changes of their losses says which round is better.
Clients' different levels cancel, a client that is missing in one of the rounds does not count in
the comparison, and less than half of the clients cannot decide it. With two clients the median is
the mean, so that either one can.
"""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from fedul_flwr.config.user_files import parse_json, read_text
from fedul_flwr.errors import UserError

FAILED, AWAY = "failed", "away"
"""Keys of a metrics line, names of the clients that failed in the round or were not connected; and
of a summary, these clients' rounds."""
REASONS = "reasons"
"""Key of a metrics line and a summary: why each of these clients is missing, by client, in the last
words about it."""
OWNERS = "owners"
"""Key of a metrics line, names of the owners whose updates are in the round's model; and of a
summary, these owners' rounds."""
_MOST_CLIENTS = 10
"""Most clients that a text names."""

Rounds = Mapping[str, Sequence[int]]
"""Rounds by client."""


def missing(line: Mapping[str, Any]) -> dict[str, str]:
    """Who is missing in a round, with one reason each: the same words wherever it is shown."""
    reasons = line.get(REASONS, {})
    kinds = {name: kind for kind in (AWAY, FAILED) for name in line.get(kind, ())}
    return {name: reasons.get(name, kind) for name, kind in kinds.items()}


def missing_in_words(line: Mapping[str, Any]) -> str:
    """The same for the end of a sentence; empty if nobody is missing."""
    listed = [f"; {name}: {reason}" for name, reason in missing(line).items()]
    more = len(listed) - _MOST_CLIENTS
    return "".join(listed[:_MOST_CLIENTS]) + (f"; and {more} more" if more > 0 else "")


def incidents(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rounds in which clients failed, and in which they were away, by client, and why if known."""
    reasons: dict[str, str] = {}
    rounds: dict[str, dict[str, list[int]]] = {FAILED: {}, AWAY: {}}
    for line in lines:
        for kind, by_client in rounds.items():
            for client in line.get(kind, ()):
                by_client.setdefault(client, []).append(line["round"])
        reasons |= line.get(REASONS, {})
    return {**rounds, **({REASONS: reasons} if reasons else {})}


def rounds_of_owners(lines: Iterable[Mapping[str, Any]], last: int) -> dict[str, Any]:
    """Rounds to the ``last`` one whose updates of an owner are in the model, by owner, if named."""
    rounds: dict[str, list[int]] = {}
    for line in lines:
        for name in line.get(OWNERS, ()) if line["round"] <= last else ():
            rounds.setdefault(name, []).append(line["round"])
    return {OWNERS: rounds} if rounds else {}


def owner_rows(rounds: Rounds, last: int | None) -> dict[str, str]:
    """Which owners a model of round ``last`` has learned from: in this round, and in all to it."""
    if not rounds:
        return {}
    here = [name for name, those in rounds.items() if last in those]
    every = ", ".join(f"{name}{_rounds(those)}" for name, those in rounds.items())
    return {f"owners in round {last}": ", ".join(here), "owners in the rounds to it": every}


def incident_rows(incidents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Text of incidents by their kind; empty without any."""
    reasons = incidents.get(REASONS, {})
    by_kind = {kind: incidents.get(kind, {}) for kind in (FAILED, AWAY)}
    return {kind: _enumerated(rounds, reasons) for kind, rounds in by_kind.items() if rounds}


def _enumerated(rounds_of: Rounds, reasons: Mapping[str, str]) -> str:
    why = {client: f": {reason}" for client, reason in reasons.items()}
    shown = [f"{c}{_rounds(rounds)}{why.get(c, '')}" for c, rounds in rounds_of.items()]
    more = len(shown) - _MOST_CLIENTS
    return ", ".join(shown[:_MOST_CLIENTS]) + (f" and {more} more" if more > 0 else "")


def _rounds(rounds: Sequence[int]) -> str:
    """`` (round 2)``, `` (rounds 2, 5-7)``, or nothing for a run without rounds."""
    if not any(rounds):
        return ""
    ordered = sorted(set(rounds))
    starts = [ordered[0], *(b for a, b in pairwise(ordered) if b != a + 1)]
    ends = [*(a for a, b in pairwise(ordered) if b != a + 1), ordered[-1]]
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f" (round{'s' * (len(ordered) > 1)} {', '.join(spans)})"


CRITERION = {
    "validation": "validation_prior_error",
    "balanced": "validation_balanced_error",
    "heldout": "heldout_loss",
    "shares": "known_error",
    "last": "round",
}
"""Key of a metrics line that selects the best round, by ``selection``."""
LOSSES = "heldout_losses"
"""Key of a metrics line with pairs of a client's number and its held-out loss."""

Line = Mapping[str, Any]
"""A line of ``metrics.jsonl``."""

OF_LINES = (
    *("round", "clients", "failures", FAILED, AWAY, REASONS, OWNERS, "members"),
    *("loss", "surrogate_loss", "surrogate_chance", "steps", "num_examples", "normalizer"),
    *("heldout_loss", LOSSES, "server_loss", "update_norm", "rate_factor"),
    *("head_points", "head_condition", "head_scale", "pseudo_label_error", "pseudo_labeled"),
    *("known_error", "known_error_deviation"),
    *("start_*", "test_*", "validation_*", "labeled_*", "seconds*"),
    *("model_bytes", "bytes_*", "percent_*", "nonzero_*", "released_*"),
)
"""Keys of lines that the framework writes, and no others; ``*`` stands for any characters."""


def is_of_lines(name: str) -> bool:
    """Whether a number of this name would stand in a line under a key of the framework's."""
    return any(fnmatchcase(name.replace("-", "_"), key) for key in OF_LINES)


def refuse_other_keys(written: Iterable[str]) -> None:
    """Refuse a key that the framework writes and :data:`OF_LINES` lacks: a method may take it."""
    odd = sorted(key for key in written if not is_of_lines(key))
    assert not odd, f"{odd[0]} is not in OF_LINES"


class Figures(UserDict[str, float | None]):
    """A method's own numbers for a line of ``metrics.jsonl``, by their keys there."""

    def __setitem__(self, name: str, value: Any) -> None:
        """Set one number, under a name that the framework does not use."""
        if is_of_lines(name):
            raise name_taken("A figure of metrics.jsonl", name, is_of_lines)
        plain = value.item() if getattr(value, "shape", None) == () else value
        if not (plain is None or isinstance(plain, bool | int | float)):
            raise UserError(
                f"Figure {name!r} of metrics.jsonl is a {type(value).__name__}, and must be one "
                "number. Arrays belong into self.state.",
                "own-method-wrong",
            )
        super().__setitem__(name.replace("-", "_"), plain)

    def add(self, name: str, value: Any) -> None:
        """Set one number that has no value yet."""
        if name.replace("-", "_") in self:
            raise UserError(
                f"Figure {name!r} of metrics.jsonl has two values in a round: one of them needs "
                "another name.",
                "own-method-wrong",
            )
        self[name] = value


def name_taken(what: str, name: str, is_taken: Callable[[str], bool]) -> UserError:
    """The refusal of a name that the framework uses, with the nearest free one."""
    free = f"my-{name.replace('_', '-')}"
    while is_taken(free):
        free = f"my-{free}"
    return UserError(
        f"{what} cannot be named {name!r}, which fedul-flwr itself uses; {free!r} is free.",
        "own-method-wrong",
    )


def criterion_value(line: Line, selection: str) -> float | None:
    """The number of a line that ``selection`` compares; None if it is not there, or not finite.

    Methods that are trained for no class priors have their plain validation error.
    """
    key = CRITERION[selection]
    value = line.get(key, line.get("validation_error") if selection == "validation" else None)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def best_line(lines: Sequence[Line], selection: str) -> Line | None:
    """The line of the round that a run keeps of ``lines``; ``None`` if no round was measured.

    Of equal rounds the first is kept. By held-out losses a round takes the place of the one kept so
    far if most clients common to both improve, see :func:`improves`.
    """
    candidates = [(criterion_value(line, selection), line) for line in lines]
    pairs = [(value, line) for value, line in candidates if value is not None]
    measured = [line for _, line in pairs]
    if not measured or selection == "last":
        return measured[-1] if measured else None
    if selection != "heldout":
        return min(pairs, key=lambda pair: pair[0])[1]
    best = measured[0]
    for line in measured[1:]:
        if improves(line, best):
            best = line
    return best


def improves(new: Line, best: Line) -> bool:
    """Whether the median change of clients' held-out losses from ``best`` to ``new`` is below 0.

    Counts the clients with a loss in both rounds; without any, the kept round stays. Where losses
    are summed in secret, only ``heldout_loss`` is known, and compared.
    """
    if LOSSES not in new or LOSSES not in best:
        return float(new["heldout_loss"]) < float(best["heldout_loss"])
    before = dict(best[LOSSES])
    changes = [loss - before[client] for client, loss in new[LOSSES] if client in before]
    return bool(changes) and median(changes) < 0


class ClientRecord(BaseModel):
    """Information about one client at the server.

    Attributes
    ----------
    set_sizes : ``M`` sizes of its unlabeled sets, n_{c,m}; None without such sets.
    priors : ``M`` rows of ``K`` class priors (Pi_c); None if it did not share them.
    class_counts : ``K`` numbers of points per class; None if they are not known.
    labeled_counts : ``K`` numbers of points with a label; None if the method uses no labels, or
        they are not known.
    condition_number : condition number of ``priors``; large values mean very similar sets.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int
    name: str = ""
    num_points: int | None = None
    num_labeled: int | None = None
    set_sizes: tuple[int, ...] | None = None
    priors: tuple[tuple[float, ...], ...] | None = None
    class_counts: tuple[int | float, ...] | None = None
    labeled_counts: tuple[int, ...] | None = None
    condition_number: float | None = None
    status: str = "accepted"
    reason: str = ""

    def class_shares(self) -> tuple[float, ...] | None:
        """``K`` shares of the classes among its points; None if they are not known."""
        if self.class_counts and (total := sum(self.class_counts)):
            return tuple(count / total for count in self.class_counts)
        if not self.priors:
            return None
        sizes = self.set_sizes if self.set_sizes and sum(self.set_sizes) else [1] * len(self.priors)
        rows = zip(*self.priors, strict=True)
        return tuple(
            sum(s * p for s, p in zip(sizes, row, strict=True)) / sum(sizes) for row in rows
        )


class Federation(BaseModel):
    """The clients of a run in the order of their ids, and the names of the K classes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    clients: tuple[ClientRecord, ...] = ()
    class_names: tuple[str, ...] | None = None

    @field_validator("clients")
    @classmethod
    def _in_order(cls, clients: tuple[ClientRecord, ...]) -> tuple[ClientRecord, ...]:
        return tuple(sorted(clients, key=lambda client: client.id))


def number(value: object) -> float | None:
    """``value`` as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values within objects of JSON under keys such as ``errors.xclp``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= dotted(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rounds in a file ``metrics.jsonl`` in their order, the last line of each round."""
    # A line that is being written may end within a character.
    text = read_text(path, errors="replace") or ""
    rounds: dict[int, dict[str, Any]] = {}
    # Not splitlines(): it also splits at characters that JSON strings may contain.
    lines = text.split("\n")
    for position, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line, f"{path}, line {position}")
        except UserError:
            if position == len(lines):
                break
            raise
        step = row.get("round") if isinstance(row, dict) else None
        if isinstance(step, bool) or not isinstance(step, int):
            raise UserError(
                f'{path}, line {position}: needs an object with an integer "round".',
                "run-file-wrong",
            )
        rounds[step] = row
    return [rounds[step] for step in sorted(rounds)]
