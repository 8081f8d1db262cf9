"""The trials of named runs with several seeds; all settings are checked before one starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from fedul_flwr.config.base import Scalar, unknown_key
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import (
    LOCATION_SETTINGS,
    RunConfig,
    default_flat,
    keys_in_use,
    keys_of_options,
    resolve,
)
from fedul_flwr.config.user_files import attribute, flatten, read_toml, user_path
from fedul_flwr.data.split import split_settings
from fedul_flwr.data.user_content import user_content
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial import CLIENTS, Trial

Overrides = Mapping[str, Scalar]
T = TypeVar("T")

_NOT_SETTABLE = {
    "seed": "every run gets each of --seeds",
    "output": "every run has a directory below --output",
    "resume": "interrupted runs resume by themselves",
}


@dataclass(frozen=True)
class Plan:
    """Checked trials of named runs.

    Attributes
    ----------
    rows, shared : own settings of every run by its name, and settings of all runs.
    output : directory of the tables; the trials' directories lie below it.
    trials : in the order in which they run: all runs with the first seed first.
    notes : a sentence for each setting by which the data splits of the runs differ, and of a
        comparison for each run that settings of all runs do not reach.
    column : the column of a paper's table that they are; empty in a comparison of runs.
    start : runs whose models these runs start from, one for each seed.
    measures : names in :data:`~fedul_flwr.experiments.compare_table.MEASURES` to show.
    """

    rows: Mapping[str, Overrides]
    shared: Overrides
    seeds: tuple[int, ...]
    num_clients: int
    output: Path
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    column: str = ""
    start: Plan | None = None
    measures: tuple[str, ...] = ()


def read_runs(path: Path) -> dict[str, dict[str, Scalar]]:
    """Read named runs from a TOML file, a table for each, or the ``ROWS`` of a Python file."""
    if path.suffix == ".py":
        return attribute(path, "ROWS", dict)
    content = read_toml(path)
    for key, value in content.items():
        if not isinstance(value, dict):
            raise UserError(
                f"{path}: {key} = {value!r} is in no table. Each table is a run; "
                "give settings of all runs with --run-config.",
                "table-file-wrong",
            )
    if not content:
        raise UserError(f"{path} has no table; each table is a run.", "table-file-wrong")
    return {name: flatten(table) for name, table in content.items()}


def method_runs(text: str) -> dict[str, dict[str, Scalar]]:
    """A run with default settings for each method of a list such as ``fedul,supervised``."""
    names = _distinct(_parts(text), "--methods")
    return {name: {"method": name} for name in names}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds from a list such as ``0,1,2``."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise UserError(
            f"--seeds {text!r} must be whole numbers from 0 on, such as 0,1,2.",
            "option-not-allowed",
            option="--seeds",
        )
    return tuple(_distinct(seeds, "--seeds"))


def slug(name: str) -> str:
    """A directory name of ``name``: lower-case letters, digits and dashes."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:80]


def make_plan(
    rows: Mapping[str, Overrides],
    shared: Overrides,
    seeds: Sequence[int],
    num_clients: int,
    output: Path,
    column: str = "",
) -> Plan:
    """Check all settings of all trials before one starts.

    Own settings of ``rows`` win over ``shared`` ones, which apply to the runs that use them.
    Relative paths start from the working directory.
    """
    for name in rows:
        if not slug(name) or not name.isprintable():
            raise UserError(
                f"Run {name!r} needs a name in one line with a letter or a digit.",
                "table-file-wrong",
            )
    refuse_one_folder("Runs", rows)
    owners = {"--run-config": shared} | {f"run {name!r}": of_row for name, of_row in rows.items()}
    for owner, settings in owners.items():
        for key in settings.keys() & _NOT_SETTABLE.keys():
            raise UserError(
                f"Setting {key} cannot be in {owner}: {_NOT_SETTABLE[key]}.",
                "setting-not-allowed",
                setting=key,
            )
    applied = _applied(rows, shared)
    output = user_path(output, Path.cwd())
    trials = tuple(
        _trial(row, column, seed, settings, num_clients, output / slug(row) / f"seed-{seed}")
        for seed in seeds
        for row, settings in applied.items()
    )
    first = {trial.row: trial.config for trial in reversed(trials)}
    notes = [*_split_warnings({row: first[row] for row in rows})]
    notes += () if column else _idle(applied, shared)
    return Plan(rows, shared, tuple(seeds), num_clients, output, trials, tuple(notes), column)


def refuse_one_folder(noun: str, names: Iterable[str]) -> None:
    """Refuse names, of ``"Runs"`` or ``"Columns"``, whose directories would be one."""
    by_slug: dict[str, str] = {}
    for name in names:
        if slug(name) in by_slug:
            raise UserError(
                f"{noun} {by_slug[slug(name)]!r} and {name!r} would share the directory "
                f"{slug(name)!r}: rename one of them.",
                "name-twice",
            )
        by_slug[slug(name)] = name


def apply(shared: Overrides, settings: Overrides) -> dict[str, Scalar]:
    """Own settings on top of the shared settings that the method, base and partition use."""
    in_use = _in_use(shared, settings)
    return {**{key: shared[key] for key in shared if key in in_use}, **settings}


def _in_use(shared: Overrides, settings: Overrides) -> frozenset[str]:
    """Keys that settings of all runs may have for a run with ``settings``."""
    defaults = default_flat()
    merged = {key: value for key, value in {**shared, **settings}.items() if key in defaults}
    stated = keys_of_options({**merged, "method-options": settings.get("method-options", "")})
    return keys_in_use(merged) - stated


def in_effect(runs: Mapping[str, Overrides], shared: Overrides) -> dict[str, Scalar]:
    """The shared settings that any of the runs uses.

    They are fewer than a file's where only some of its rows run, or with settings that a search
    chose.
    """
    used = {key for settings in runs.values() for key in apply(shared, settings)}
    return {key: value for key, value in shared.items() if key in used}


def _applied(runs: Mapping[str, Overrides], shared: Overrides) -> dict[str, dict[str, Scalar]]:
    """Settings of each run: its own, and the shared ones that it uses."""
    defaults = default_flat()
    applied = {}
    used: set[str] = set()
    for name, settings in runs.items():
        try:
            applied[name] = apply(shared, settings)
        except UserError as error:
            raise _of_run(name, error) from None
        used |= applied[name].keys()
    for key in shared:
        if key not in used and key not in defaults:
            in_use = (_in_use(shared, settings) for settings in runs.values())
            raise unknown_key(key, frozenset(defaults).union(*in_use))
    for key in shared:
        if key not in used:
            raise UserError(
                f"Setting {key} in --run-config has no effect in any of the runs: leave it out.",
                "setting-without-effect",
                setting=key,
            )
    return applied


def _trial(
    row: str, column: str, seed: int, settings: Overrides, num_clients: int, directory: Path
) -> Trial:
    try:
        # Without the output, which may hold a run already.
        config = resolve({**settings, "seed": seed}, Path.cwd())
    except UserError as error:
        raise _of_run(row, error) from None
    flat = {key: value for key, value in config.to_flat().items() if key not in LOCATION_SETTINGS}
    config = config.model_copy(update={"output": str(directory)})
    content = user_content(config)
    return Trial(row, seed, directory, config, flat | {CLIENTS: num_clients}, column, content)


def _of_run(name: str, error: UserError) -> UserError:
    return UserError(f"Run {name!r}: {error}", error.code, **error.values)


def _split_warnings(configs: Mapping[str, RunConfig]) -> Iterable[str]:
    data = {
        name: {
            "dataset": config.dataset,
            "image-size": config.image_size,
            "client-data": config.client_data,
            **split_settings(config),
        }
        for name, config in configs.items()
    }
    for key in dict.fromkeys(chain.from_iterable(data.values())):
        # Only runs with a partition have settings of its table.
        names_by_value: dict[Scalar, list[str]] = {}
        for name, settings in data.items():
            if key in settings:
                names_by_value.setdefault(settings[key], []).append(name)
        if len(names_by_value) > 1:
            values = "; ".join(
                f"{value!r} for {', '.join(names)}" for value, names in names_by_value.items()
            )
            yield f"The runs do not share their data splits, {key} differs: {values}."


def _idle(applied: Mapping[str, Overrides], shared: Overrides) -> Iterable[str]:
    """A sentence for each run that settings of all runs do not reach, as it trains nothing."""
    for name, settings in applied.items():
        method = find_method(str(settings.get("method", default_flat()["method"])))
        if left_out := sorted(method.idle & (shared.keys() - settings.keys())):
            yield f"Run {name!r} trains nothing, without effect on it: {', '.join(left_out)}."


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _distinct(values: Sequence[T], option: str) -> Sequence[T]:
    if not values:
        raise UserError(
            f"{option} names nothing; separate names by commas.",
            "option-not-allowed",
            option=option,
        )
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{option} names {value} twice.", "name-twice", option=option)
    return values
