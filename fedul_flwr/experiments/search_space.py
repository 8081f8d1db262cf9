"""The settings that a search tries, and the measure that chooses among them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedul_flwr.config.base import Scalar, Settings, load_reference, unknown_key
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.overrides import flatten, read_toml
from fedul_flwr.config.run_config import RunConfig, default_flat
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.data.run_files.records import Line, best_line, criterion_value
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import table_file
from fedul_flwr.experiments.trial_plan import Overrides

Name = Literal["validation", "balanced", "heldout"]

_LOSSES = ("loss", "surrogate_loss", "heldout_loss", "validation_loss")


@dataclass(frozen=True)
class Criterion:
    """The measure by which trials are compared.

    Attributes
    ----------
    name : ``validation`` is the error on the server's labeled validation points in percent, for
        methods like FedUL under the class priors that they train for, and ``balanced`` its mean
        over classes; ``heldout`` is the loss on the clients'
        held-out unlabeled sets.
    selection : criterion by which a run chooses its round: one of ``name``, or ``last``.
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
    """Make the criterion ``name`` for a row.

    A run that keeps its last round is measured in its last round. With ``heldout`` other runs
    choose their round by the held-out loss, so that the choice uses no label; with ``balanced``
    runs that would choose it by validation error do so by the balanced one.

    Parameters
    ----------
    settings : settings of the row.
    trial : settings of the row with those that the search sets for all of its trials.
    """
    from fedul_flwr.run.resolve_settings import choose_selection

    method = find_method(settings.method)
    if not method.trains:
        raise UserError(
            f"Method {settings.method!r} does not train, so it has no settings to search.",
            "nothing-to-search",
        )
    can_hold_out = load_reference(method.strategy, "method").can_hold_out
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


FILE = "search.toml"
ROUNDS = "rounds"
"""Key of an option: share of the experiment's rounds, in (0, 1]."""
AS_GIVEN = "as the experiment"
"""Name of an option without settings."""


Point = Mapping[str, int]
"""The position of an option for each dimension of the space."""

_SCALED = ("num-rounds", "learning-rate-rounds", "semi.labels-only-rounds")
"""Settings in rounds; a share of the rounds scales all of them."""
_DRAWN = 10
"""Maximum number of points drawn for each trial, if the row refuses most of them."""
_FIXED = {
    "num-rounds": f"write {ROUNDS}, a share of the experiment's rounds",
    "seed": "--seed sets it",
    "output": "every trial has a directory of its own",
    "resume": "interrupted trials resume by themselves",
    "selection": "the experiment and --criterion choose the best round",
    "measure-test-error": "no trial measures the test error",
    "evaluate-every": "the experiment sets which rounds are measured",
    "method": "every method has a search of its own",
    "dataset": "every data set has a search of its own",
}
"""Settings that no option may have, and why."""


class SearchSettings(Settings):
    """Content of a ``search.toml``; :func:`read_search` makes settings and options flat."""

    noun = "key"
    page = "docs/tune.md"

    trials: int = Field(default=12, ge=1)
    """Number of trials of every row; the first has the experiment's own settings."""
    seeds: int = Field(default=1, ge=1)
    """Number of seeds of a trial that no rung ends; its measure is their mean."""
    reduction_factor: int = Field(default=2, ge=2)
    """About one of so many trials continues after a rung."""
    rungs: int = Field(default=2, ge=0)
    """Number of rungs: rounds R/factor^rungs, …, R/factor of the R rounds after the method's
    warm-up; 0: no trial stops early."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of all trials; runs with the chosen settings do not have them."""
    space: dict[str, list[dict[str, Any]]] = Field(min_length=1)
    """Options of each dimension by name; an option is a table of settings."""
    first: list[dict[str, int]] = Field(default_factory=list)
    """Points that every row tries before drawn ones: by dimension the position of its option,
    counted from 0; a dimension that is left out has its first option."""

    def labels(self, name: str) -> list[str]:
        """Names of the options of a dimension."""
        return [label(option) for option in self.space[name]]


@dataclass(frozen=True)
class Candidate:
    """The settings of a trial.

    Attributes
    ----------
    options : name of its option of each dimension; empty for the experiment's own settings.
    changes : settings that differ from the experiment's.
    dropped : options that the row refuses and the candidate leaves out, with the reason.
    """

    options: Mapping[str, str]
    changes: Overrides
    dropped: Mapping[str, str]


def label(option: Overrides) -> str:
    """Name of an option: ``optimizer = sgd, learning-rate = 0.1``."""
    return ", ".join(f"{key} = {value}" for key, value in option.items()) or AS_GIVEN


def search_files(experiments: Path, table: str) -> list[Path]:
    """The files ``search.toml`` in ``experiments`` and the folders down to the table's.

    The table's own file comes last if it has a search.
    """
    file = table_file(experiments, table)
    folders = [folder for folder in file.parents if folder.is_relative_to(experiments)]
    files = [folder / FILE for folder in reversed(folders) if (folder / FILE).is_file()]
    if file.is_file() and _content(file):
        files.append(file)
    if not files:
        raise UserError(
            f"{file} has no search and no {FILE} above it: name one with --search.",
            "search-missing",
        )
    return files


def _content(file: Path) -> dict[str, Any]:
    """The search of a file: all of a ``search.toml``, or ``[search]`` of a table's file."""
    content = read_toml(file)
    return content.get("search", {}) if "title" in content else content


def read_search(files: Sequence[Path], trials: int | None = None) -> SearchSettings:
    """Read and check a search.

    Parameters
    ----------
    files : a later file replaces keys of the earlier ones.
    trials : number of trials in place of that of the files.
    """
    try:
        content: dict[str, Any] = {}
        for file in files:
            content |= _content(file)
        parsed = SearchSettings.parse(content | ({} if trials is None else {"trials": trials}))
        space = {
            name: [_option(name, option) for option in options]
            for name, options in parsed.space.items()
        }
        for name, options in space.items():
            if len(options) < 2 or len({*map(label, options)}) < len(options):
                raise UserError(
                    f"Key space.{name} needs two or more different options.", "table-file-wrong"
                )
        for point in parsed.first:
            for name, at in point.items():
                if name not in space:
                    keys = [f"first.{dimension}" for dimension in space]
                    raise unknown_key(
                        f"first.{name}", keys, SearchSettings.noun, SearchSettings.page
                    )
                if not 0 <= at < len(space[name]):
                    raise UserError(
                        f"Key first.{name} = {at} must be a position from 0 to "
                        f"{len(space[name]) - 1}, that of an option of space.{name}.",
                        "table-file-wrong",
                    )
        settings = flatten(parsed.settings)
        _check_keys("settings", settings, {"seed": _FIXED["seed"], "output": _FIXED["output"]})
    except UserError as error:
        text, file = str(error), files[-1]
        raise UserError(
            text if text.startswith(str(file)) else f"{file}: {text}", error.code, **error.values
        ) from None
    return parsed.model_copy(update={"settings": settings, "space": space})


def _option(name: str, option: dict[str, Any]) -> dict[str, Scalar]:
    flat = flatten(option)
    share = flat.get(ROUNDS, 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UserError(
            f"Key space.{name}: {ROUNDS} = {share!r} must be a share in (0, 1].", "table-file-wrong"
        )
    _check_keys(f"space.{name}", {key: v for key, v in flat.items() if key != ROUNDS}, _FIXED)
    return flat


def _check_keys(where: str, flat: Overrides, refused: Mapping[str, str]) -> None:
    defaults = default_flat()
    for key in flat:
        if key in refused:
            raise UserError(
                f"Key {where}: {key} cannot be searched or set here: {refused[key]}.",
                "table-file-wrong",
            )
        if key not in defaults:
            raise unknown_key(key, defaults)


def points(search: SearchSettings, seed: int) -> Iterator[Point]:
    """Draw points without end; every row tries them in this order.

    They are a scrambled Sobol sequence (Optuna's ``QMCSampler``): the first eight points contain
    each option of a dimension with two, four or eight options equally often.
    """
    import optuna

    with warnings.catch_warnings():  # a test holds the points of this experimental class
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.QMCSampler(
            qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False
        )
    study = optuna.create_study(sampler=sampler)
    choices: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(range(len(options)))
        for name, options in search.space.items()
    }
    # The sampler draws its first trial at random; the sequence begins with the second.
    study.enqueue_trial(dict.fromkeys(choices, 0))
    study.tell(study.ask(choices), 0.0)
    while True:
        trial = study.ask(choices)
        study.tell(trial, 0.0)
        yield {name: int(trial.params[name]) for name in choices}


def candidates(
    search: SearchSettings,
    seed: int,
    current: Overrides,
    resolved: Callable[[Overrides], Overrides],
) -> Iterator[Candidate]:
    """The settings to try for a row: the experiment's, the search's first points, then drawn ones.

    An option that the row refuses by itself, or that belongs to another method, is dropped from
    the points. A point is skipped if the row refuses it as a whole, or if an earlier point gives
    the same settings.

    Parameters
    ----------
    current : all settings of the row.
    resolved : checks settings and returns those that have an effect, or raises UserError.
    """
    refusals: dict[tuple[str, int], str] = {}
    for name, options in search.space.items():
        for position, option in enumerate(options):
            changed = {**current, **changes(current, option)}
            if reason := _refusal(resolved, changed) or _unused(resolved(changed), option):
                refusals[name, position] = reason
    yield Candidate({}, {}, {})
    tried = [dict(resolved(current))]
    first = [{**dict.fromkeys(search.space, 0), **point} for point in search.first]
    for point in chain(first, islice(points(search, seed), _DRAWN * search.trials)):
        used = {name: at for name, at in point.items() if (name, at) not in refusals}
        drawn: dict[str, Scalar] = {}
        for name, at in used.items():
            drawn |= search.space[name][at]
        changed = changes(current, drawn)
        if _refusal(resolved, {**current, **changed}):
            continue
        settings = dict(resolved({**current, **changed}))
        if settings in tried:
            continue
        tried.append(settings)
        names = {name: search.labels(name)[at] for name, at in used.items()}
        dropped = {
            f"{name}: {search.labels(name)[at]}": refusals[name, at]
            for name, at in point.items()
            if name not in used
        }
        yield Candidate(names, changed, dropped)


def _refusal(resolved: Callable[[Overrides], Overrides], settings: Overrides) -> str:
    try:
        resolved(settings)
    except UserError as error:
        return str(error)
    return ""


def _unused(settings: Overrides, option: Overrides) -> str:
    """Name the keys of ``option`` in tables that the row's method does not use."""
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
        if any(rule.key in option and not rule.matches(result[rule.key]) for rule in rules)
    ]
    result |= {key: defaults[key] for key in gone if key not in option}
    return {key: value for key, value in result.items() if current.get(key) != value}
