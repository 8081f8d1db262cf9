"""What a search tries: options, drawn points, their changes in a row; and the measure of trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scipy.stats import qmc

from fedul_flwr.config.base import Scalar, unknown_key
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig, default_flat
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.data.run_files.records import Line, best_line, criterion_value
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial_plan import Overrides

ROUNDS = "rounds"
"""Key of an option: share of the experiment's rounds, in (0, 1]."""
AS_BEFORE = "as the experiment"
"""Name of an option without settings."""

Point = Mapping[str, int]
"""The position of an option for each dimension of the space."""

# The steps reach from below every row's to above it; a trial that diverges is replaced by another.
# Dimensions of 2, 4 and 8 options: of the first eight points each option has its equal share.
SPACE: Mapping[str, Sequence[Overrides]] = {
    "step": [
        {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
        {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.03},
        {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
        {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.001},
        {"optimizer": "adam", "learning-rate": 1e-2},
        {"optimizer": "adam", "learning-rate": 3e-3},
        {"optimizer": "adam", "learning-rate": 1e-3},
        {"optimizer": "adam", "learning-rate": 1e-4},
    ],
    "schedule": [{"learning-rate-schedule": "constant"}, {"learning-rate-schedule": "cosine"}],
    "weight-decay": [
        {"weight-decay": 0.0},
        {"weight-decay": 1e-4},
        {"weight-decay": 5e-4},
        {"weight-decay": 1e-3},
    ],
    "augmentation": [{}, {"augment": "none"}],
    "rounds": [{ROUNDS: 1.0}, {ROUNDS: 0.5}],
}
"""The options of each dimension that a search has unless it names others."""
_SCALED = ("num-rounds", "learning-rate-rounds", "semi.labels-only-rounds")
"""Settings in rounds; a share of the rounds scales all of them."""
_DRAWN = 10
"""Maximum number of points drawn for each trial, if the row refuses most of them."""
_PLACED = ("seed", "output", "resume")
"""Settings of single runs, which no search has."""
_FIXED = (
    *(*_PLACED, "num-rounds", "selection", "measure-test-error", "evaluate-every"),
    *("method", "dataset"),
)
"""Settings that no option may have: they make trials that cannot be compared."""


@dataclass(frozen=True)
class Search:
    """What ``fedul-flwr tune`` tries for every row of a table.

    Attributes
    ----------
    trials : number of trials of a row, at least 1; the first has the row's settings as they are.
    seeds : number of seeds of a trial that no rung ends, at least 1; its measure is their mean.
    reduction_factor : about one of so many trials continues after a rung; at least 2.
    rungs : number of rungs: rounds R/factor^rungs, …, R/factor of the R rounds after the method's
        warm-up; 0: no trial stops early.
    settings : flat settings of all trials; runs with the chosen settings do not have them.
    space : options of each dimension; an option is a mapping of flat settings, empty for those of
        the row. The key ``rounds`` is a share of the row's rounds in (0, 1].
    first : points that every row tries before drawn ones: by dimension the position of its option,
        counted from 0; a dimension that is left out has its first option.
    """

    trials: int = 12
    seeds: int = 2
    reduction_factor: int = 2
    rungs: int = 2
    settings: Overrides = field(default_factory=dict)
    space: Mapping[str, Sequence[Overrides]] = field(default_factory=lambda: SPACE)
    first: Sequence[Point] = ()

    def __post_init__(self) -> None:
        least = {"trials": 1, "seeds": 1, "reduction_factor": 2, "rungs": 0}
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise UserError(f"Search: {name} must be at least {limit}.", "table-file-wrong")
        _check_keys("settings", self.settings, _PLACED)
        for name, options in self.space.items():
            if len({*map(label, options)}) < max(2, len(options)):
                raise UserError(
                    f"Search: space {name!r} needs two or more different options.",
                    "table-file-wrong",
                )
            for option in options:
                share = option.get(ROUNDS, 1.0)
                if not isinstance(share, float | int) or not 0 < share <= 1:
                    raise UserError(
                        f"Search: {ROUNDS} = {share!r} must be a share in (0, 1].",
                        "table-file-wrong",
                    )
                changed = {key: value for key, value in option.items() if key != ROUNDS}
                _check_keys(f"space {name!r}", changed, _FIXED)
        for point in self.first:
            for name, position in point.items():
                if not 0 <= position < len(self.space.get(name, ())):
                    raise UserError(
                        f"Search: first has {name!r}: {position}, which is no option of the space.",
                        "table-file-wrong",
                    )


def _check_keys(where: str, flat: Overrides, refused: Sequence[str]) -> None:
    for key in flat:
        if key in refused:
            raise UserError(
                f"Search: {where} cannot have {key}: trials differ in it, or must not.",
                "table-file-wrong",
            )
        if key not in default_flat():
            raise unknown_key(key, default_flat())


class Candidate(NamedTuple):
    """The settings of a trial: names of its options by dimension, changed settings, and options
    that the row refuses and the trial leaves out, with the reason.
    """

    options: Mapping[str, str]
    changes: Overrides
    dropped: Mapping[str, str]


def label(option: Overrides) -> str:
    """Name of an option: ``optimizer = sgd, learning-rate = 0.1``."""
    return ", ".join(f"{key} = {value}" for key, value in option.items()) or AS_BEFORE


def points(search: Search, seed: int) -> list[Point]:
    """Points of a search; every row tries them in this order.

    They are a scrambled Sobol sequence: the first eight points contain each option of a dimension
    with two, four or eight options equally often.
    """
    sobol = qmc.Sobol(len(search.space), seed=seed)
    drawn = sobol.random_base2(math.ceil(math.log2(_DRAWN * search.trials)))
    sizes = {name: len(options) for name, options in search.space.items()}
    positions = (drawn * [*sizes.values()]).astype(int)[: _DRAWN * search.trials]
    return [dict(zip(sizes, point, strict=True)) for point in positions.tolist()]


def candidates(
    search: Search,
    seed: int,
    current: Overrides,
    resolved: Callable[[Overrides], Overrides],
) -> Iterator[Candidate]:
    """The settings to try for a row: the experiment's, the search's first points, then drawn ones.

    An option that the row refuses by itself, or that belongs to another method, is dropped from
    the points. A point is skipped if the row refuses it as a whole, or if an earlier point gives
    the same settings. ``resolved`` checks settings and returns those that have an effect.
    """
    refusals = {
        (name, position): reason
        for name, options in search.space.items()
        for position, option in enumerate(options)
        if (reason := _refusal(resolved, current, option))
    }
    yield Candidate({}, {}, {})
    tried = [dict(resolved(current))]
    first = [{**dict.fromkeys(search.space, 0), **point} for point in search.first]
    for point in (*first, *points(search, seed)):
        names = {name: label(search.space[name][at]) for name, at in point.items()}
        refused = {name: why for name, at in point.items() if (why := refusals.get((name, at)))}
        drawn: dict[str, Scalar] = {}
        for name in filter(lambda name: name not in refused, point):
            drawn |= search.space[name][point[name]]
        changed = changes(current, drawn)
        try:
            settings = dict(resolved({**current, **changed}))
        except UserError:
            continue
        if settings not in tried:
            tried.append(settings)
            options = {name: names[name] for name in point if name not in refused}
            dropped = {f"{name}: {names[name]}": why for name, why in refused.items()}
            yield Candidate(options, changed, dropped)


def _refusal(
    resolved: Callable[[Overrides], Overrides], current: Overrides, option: Overrides
) -> str:
    """Why a row does not take an option, or which of its keys the row's method does not use."""
    try:
        settings = resolved({**current, **changes(current, option)})
    except UserError as error:
        return str(error)
    keys = [key for key in option if key != ROUNDS and key not in settings]
    return f"no effect on this row: {', '.join(keys)}" if keys else ""


def changes(current: Overrides, option: Overrides) -> dict[str, Scalar]:
    """The settings that ``option`` changes in ``current``.

    Settings of a replaced optimizer or schedule get their defaults, such as the momentum of SGD. A
    share of the rounds scales the rounds, stages and schedules.
    """
    defaults = default_flat()
    share = float(option.get(ROUNDS, 1.0))
    wanted = {key: value for key, value in option.items() if key != ROUNDS}
    for key in _SCALED if share != 1 else ():
        if key in current and current[key] and key not in wanted:
            wanted[key] = max(1, round(int(current[key]) * share))
    result = {**current, **wanted}
    gone = [
        name.replace("_", "-")
        for name, rules in SharedSettings.rules().items()
        if any(
            rule.key in option and not (rule.of or rule.matches(result[rule.key])) for rule in rules
        )
    ]
    result |= {key: defaults[key] for key in gone if key not in option}
    return {key: value for key, value in result.items() if current.get(key) != value}


Name = Literal["validation", "balanced", "heldout", "shares"]
_WITHOUT_LABELS = ("heldout", "shares")

_LOSSES = ("loss", "surrogate_loss", "heldout_loss", "validation_loss")
_WORDS = {
    "validation": "validation error {:.2f} %",
    "balanced": "balanced validation error {:.2f} %",
    "heldout": "held-out loss {:.4f}",
    "shares": "error known from class shares {:.2f} %",
}


@dataclass(frozen=True)
class Criterion:
    """The measure by which trials are compared.

    ``validation`` is the error on the server's labeled validation points in percent, for methods
    like FedUL under the class priors that they train for, and ``balanced`` its mean over classes;
    ``heldout`` is the loss on the clients' held-out unlabeled sets, and ``shares`` the error known
    from class shares. ``selection`` is the criterion by which a run chooses its round: one of
    these, or ``last``.
    """

    name: Name
    selection: str

    def text(self, value: float) -> str:
        """A value for messages."""
        return _WORDS[self.name].format(value)

    def settings(self) -> dict[str, Scalar]:
        """Settings of every trial: it takes the measure, and it does not measure the test error."""
        measured = self.name if self.name in _WITHOUT_LABELS else self.selection
        return {"selection": measured, "measure-test-error": False}

    def chosen(self, lines: Sequence[Line]) -> tuple[int, float] | None:
        """The round that a run keeps of the rounds so far, and the measure in it.

        It is None if no round was measured. Of equal rounds a run keeps the first.
        """
        measured = [line for line in lines if criterion_value(line, self.name) is not None]
        best = best_line(measured, self.selection)
        value = None if best is None else criterion_value(best, self.name)
        return None if best is None or value is None else (int(best["round"]), value)


def make_criterion(name: Name, settings: RunConfig, trial: RunConfig) -> Criterion:
    """Make the criterion ``name`` for a row; ``trial`` has what the search sets for all trials.

    A run that keeps its last round is measured in its last round. With ``heldout`` and ``shares``
    other runs choose their round by these, so that the choice uses no label; with ``balanced``
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
    by_itself, searched = (
        of.validation_fraction > 0 and of.dataset != "none" for of in (settings, trial)
    )
    if name not in _WITHOUT_LABELS and not searched:
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
    if name == "shares":  # refuses a run whose error is not known
        choose_selection(
            settings.model_copy(update={"selection": name}), can_hold_out, has_validation=False
        )
    chosen = choose_selection(settings, can_hold_out, has_validation=by_itself)
    by_validation = name == "balanced" and chosen == "validation"
    replaced = by_validation or (name in _WITHOUT_LABELS and chosen != "last")
    return Criterion(name, name if replaced else chosen)


def is_diverged(line: Line) -> bool:
    """Whether a loss of a round is infinite or NaN."""
    values = [line.get(key) for key in _LOSSES]
    return any(isinstance(value, float) and not math.isfinite(value) for value in values)
