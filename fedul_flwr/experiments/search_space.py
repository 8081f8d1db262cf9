"""What a search tries: its ``search.toml``, and what a drawn point changes in a row's settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from fedul_flwr.config.base import Scalar, Settings, unknown_key
from fedul_flwr.config.overrides import flatten, read_toml
from fedul_flwr.config.run_config import default_flat
from fedul_flwr.config.shared import OF_SCHEDULES
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import table_file

FILE = "search.toml"
ROUNDS = "rounds"
"""Key of an option: the share of the experiment's rounds, in (0, 1]."""
OWN = "as the experiment"
"""How an option without settings is called."""

Overrides = Mapping[str, Scalar]
Point = Mapping[str, int]
"""For each dimension of the space the position of an option."""

_SCALED = ("num-rounds", "learning-rate-rounds", "semi.labels-only-rounds")
"""Settings in rounds that a share of the rounds shortens alike."""
_DRAWN = 10
"""Points that are drawn for each trial at most, where a row refuses most of them."""
_FIXED = {
    "num-rounds": f"write {ROUNDS}, a share of the experiment's rounds",
    "seed": "--seed sets it",
    "output": "every trial has its place",
    "resume": "what was interrupted goes on by itself",
    "selection": "the experiment and --criterion say how the best round is chosen",
    "measure-test-error": "no trial measures it",
    "evaluate-every": "the experiment says which rounds are measured",
    "method": "a search is made for each method",
    "dataset": "a search is made on each data set",
}
"""Settings that no option may have."""


class SearchSettings(Settings):
    """Content of a ``search.toml``."""

    noun = "key"
    page = "docs/tune.md"

    trials: int = Field(default=12, ge=1)
    """Trials of every row, the experiment's own settings among them."""
    reduction_factor: int = Field(default=2, ge=2)
    """About one of so many trials goes on after a rung."""
    rungs: int = Field(default=2, ge=0)
    """Number of rungs, at rounds R/factor^rungs, …, R/factor of R; 0 lets all trials end."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of all trials, but not of runs with what was found."""
    space: dict[str, list[dict[str, Any]]] = Field(min_length=1)
    """Dimensions by name, each a list of options; an option is a table of settings."""


@dataclass(frozen=True)
class Search:
    """A search that was read.

    Attributes
    ----------
    trials, reduction_factor, rungs, settings : see :class:`SearchSettings`.
    space : options of each dimension, as flat settings and :data:`ROUNDS`.
    """

    trials: int
    reduction_factor: int
    rungs: int
    settings: Overrides
    space: Mapping[str, tuple[Overrides, ...]]

    def labels(self, name: str) -> list[str]:
        """Options of a dimension in words."""
        return [label(option) for option in self.space[name]]

    def to_json(self) -> dict[str, Any]:
        """All that says what is tried."""
        return {
            "trials": self.trials,
            "reduction-factor": self.reduction_factor,
            "rungs": self.rungs,
            "settings": dict(self.settings),
            "space": {name: [dict(option) for option in of] for name, of in self.space.items()},
        }


@dataclass(frozen=True)
class Candidate:
    """Settings that a trial tries.

    Attributes
    ----------
    options : its option of each dimension, in words; empty for the experiment's own settings.
    changes : settings that differ from the experiment's.
    dropped : options that this row refuses and the candidate therefore does without, and why.
    """

    options: Mapping[str, str]
    changes: Overrides
    dropped: Mapping[str, str]


def label(option: Overrides) -> str:
    """An option in words: ``optimizer = sgd, learning-rate = 0.1``."""
    return ", ".join(f"{key} = {value}" for key, value in option.items()) or OWN


def search_files(experiments: Path, table: str) -> list[Path]:
    """The table's file if it has a search, and files ``search.toml`` of the folders above it.

    Returns
    -------
    The outermost first, up to ``experiments``.

    Raises
    ------
    UserError
        If there is none.
    """
    own = table_file(experiments, table)
    folders = [folder for folder in own.parents if folder.is_relative_to(experiments)]
    found = [folder / FILE for folder in reversed(folders) if (folder / FILE).is_file()]
    if own.is_file() and _content(own):
        found.append(own)
    if not found:
        raise UserError(f"{own} has no search and no {FILE} above it: name one with --search.")
    return found


def _content(file: Path) -> dict[str, Any]:
    """A search: a whole ``search.toml``, and ``[search]`` of a table's file."""
    content = read_toml(file)
    return content.get("search", {}) if "title" in content else content


def read_search(files: Sequence[Path], trials: int | None = None) -> Search:
    """Read and check searches; ``trials`` takes the place of theirs.

    Parameters
    ----------
    files : a key that the last one leaves out is that of the one before it, and so on.

    Raises
    ------
    UserError
        Naming the last file and the key that is wrong.
    """
    try:
        content: dict[str, Any] = {}
        for file in files:
            content |= _content(file)
        found = SearchSettings.parse(content)
        space = {
            name: tuple(_option(name, option) for option in options)
            for name, options in found.space.items()
        }
        for name, options in space.items():
            if len(options) < 2 or len({label(option) for option in options}) < len(options):
                raise UserError(f"Key space.{name} needs two or more options, each another.")
        settings = flatten(found.settings)
        _check_keys("settings", settings, {"seed": _FIXED["seed"], "output": _FIXED["output"]})
    except UserError as error:
        text, file = str(error), files[-1]
        raise UserError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    return Search(trials or found.trials, found.reduction_factor, found.rungs, settings, space)


def _option(name: str, option: dict[str, Any]) -> Overrides:
    flat = flatten(option)
    share = flat.get(ROUNDS, 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UserError(f"Key space.{name}: {ROUNDS} = {share!r} must be a share in (0, 1].")
    _check_keys(f"space.{name}", {key: v for key, v in flat.items() if key != ROUNDS}, _FIXED)
    return flat


def _check_keys(place: str, flat: Overrides, refused: Mapping[str, str]) -> None:
    defaults = default_flat()
    for key in flat:
        if key in refused:
            raise UserError(f"Key {place}: {key} cannot be searched or set here: {refused[key]}.")
        if key not in defaults:
            raise unknown_key(key, defaults)


def points(search: Search, seed: int) -> Iterator[Point]:
    """Points of the space in the order in which every row tries them, without end.

    They are a scrambled Sobol sequence (Optuna's ``QMCSampler``): of the first eight points each
    option of a dimension with two, four or eight options has its equal share.
    """
    import optuna

    with warnings.catch_warnings():  # the class may yet change; a test holds what it draws
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.QMCSampler(
            qmc_type="sobol", scramble=True, seed=seed, warn_independent_sampling=False
        )
    study = optuna.create_study(sampler=sampler)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(range(len(options)))
        for name, options in search.space.items()
    }
    # The sampler draws the first trial at random, and the sequence from the second on.
    study.enqueue_trial(dict.fromkeys(space, 0))
    study.tell(study.ask(space), 0.0)
    while True:
        trial = study.ask(space)
        study.tell(trial, 0.0)
        yield {name: int(trial.params[name]) for name in search.space}


def candidates(
    search: Search,
    seed: int,
    given: Overrides,
    resolved: Callable[[Overrides], Overrides],
) -> list[Candidate]:
    """What the trials of a row try: the experiment's own settings, then points of the space.

    An option that the row refuses by itself, or that is another method's, is dropped from its
    points. A point that is refused as a whole, or leaves the same settings as an earlier one, is
    passed over.

    Parameters
    ----------
    given : all settings of the row.
    resolved : checks settings and gives all that have an effect; raises UserError if it refuses.
    """
    refusals: dict[tuple[str, int], str] = {}
    for name, options in search.space.items():
        for position, option in enumerate(options):
            changed = {**given, **changes(given, option)}
            if reason := _refusal(resolved, changed) or _unused(resolved(changed), option):
                refusals[name, position] = reason
    found = [Candidate({}, {}, {})]
    known = [dict(resolved(given))]
    for point in islice(points(search, seed), _DRAWN * search.trials):
        if len(found) >= search.trials:
            break
        kept = {name: at for name, at in point.items() if (name, at) not in refusals}
        option = {key: v for name, at in kept.items() for key, v in search.space[name][at].items()}
        changed = changes(given, option)
        if _refusal(resolved, {**given, **changed}):
            continue
        settings = dict(resolved({**given, **changed}))
        if settings in known:
            continue
        known.append(settings)
        words = {name: search.labels(name)[at] for name, at in kept.items()}
        dropped = {
            f"{name}: {search.labels(name)[at]}": refusals[name, at]
            for name, at in point.items()
            if name not in kept
        }
        found.append(Candidate(words, changed, dropped))
    return found


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


def changes(given: Overrides, option: Overrides) -> dict[str, Scalar]:
    """What ``option`` changes in the settings ``given``.

    Settings that belonged to what it replaces take their defaults: momentum without SGD, and those
    of a schedule that is gone. A share of the rounds shortens stages and schedules alike.
    """
    defaults = default_flat()
    share = float(option.get(ROUNDS, 1.0))
    wanted = {key: value for key, value in option.items() if key != ROUNDS}
    for key in _SCALED if share != 1 else ():
        if key in given and given[key] and key not in wanted:
            wanted[key] = max(1, round(int(given[key]) * share))
    result = {**given, **wanted}
    gone = [] if result["optimizer"] == "sgd" else ["momentum"]
    for schedule, names in OF_SCHEDULES.items():
        if result["learning-rate-schedule"] != schedule:
            gone += [name.replace("_", "-") for name in names]
    result |= {key: defaults[key] for key in gone if key not in option}
    return {key: value for key, value in result.items() if given.get(key) != value}
