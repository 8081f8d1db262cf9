"""The trials of named runs with several seeds; all settings are checked before one starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path

from fedul_flwr.config.base import Scalar, shown, unknown_key
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
    notes : a sentence for each setting by which the data splits of the runs differ, and for each
        run that settings of all runs do not reach.
    measures : names in :data:`~fedul_flwr.experiments.compare_table.MEASURES` to show.
    """

    rows: Mapping[str, Overrides]
    shared: Overrides
    output: Path
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()

    @property
    def seeds(self) -> list[int]:
        """Seeds of the trials."""
        return list(dict.fromkeys(trial.seed for trial in self.trials))

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self.trials[0].clients if self.trials else 0


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
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UserError(
            "--methods names nothing; separate names by commas.",
            "option-not-allowed",
            option="--methods",
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--methods names {twice[0]} twice.", "name-twice", option="--methods")
    return {name: {"method": name} for name in names}


def seeds_of(seeds: str | int | Iterable[int]) -> tuple[int, ...]:
    """Seeds of a list such as ``0,1,2`` or ``[0, 1, 2]``, or as many as a number says."""
    parts = seeds.split(",") if isinstance(seeds, str) else seeds
    try:
        parts = parts if isinstance(parts, Iterable) else range(index(parts))
        numbers = tuple(map(int, parts))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise UserError(
            f"Seeds {shown(seeds)} must be whole numbers from 0 on, such as 0,1,2, each once; in "
            "Python also how many.",
            "option-not-allowed",
            option="--seeds",
        )
    return numbers


def slug(name: str) -> str:
    """A directory name of ``name``: lower-case letters, digits and dashes."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:80]


def make_plan(
    rows: Mapping[str, Overrides],
    shared: Overrides,
    seeds: Sequence[int],
    clients: int,
    output: Path,
) -> Plan:
    """Check all settings of all trials before one starts.

    Own settings of ``rows`` win over ``shared`` ones, which apply to the runs that use them.
    Relative paths start from the working directory.
    """
    output = user_path(output, Path.cwd())
    trials = make_trials(rows, shared, seeds, clients, output)
    of_row = {trial.row: trial.config for trial in reversed(trials)}
    configs = {row: of_row[row] for row in rows}
    notes = (*_split_notes(configs), *_idle_notes(rows, shared, configs))
    return Plan(rows, shared, output, trials, notes)


def make_trials(
    rows: Mapping[str, Overrides],
    shared: Overrides,
    seeds: Sequence[int],
    clients: int,
    output: Path,
    column: str = "",
) -> tuple[Trial, ...]:
    """The trials of a plan, or of a column of a paper's table."""
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
    applied = {}
    for name, settings in rows.items():
        with prefixed(f"Run {name!r}"):
            applied[name] = apply(shared, settings)
    unused = [key for key in shared if not any(key in settings for settings in applied.values())]
    allowed = frozenset(default_flat()).union(*(_in_use(shared, of) for of in rows.values()))
    if unknown := [key for key in unused if key not in allowed]:
        raise unknown_key(unknown[0], allowed)
    if unused:
        raise UserError(
            f"Setting {unused[0]} in --run-config has no effect in any of the runs: leave it out.",
            "setting-without-effect",
            setting=unused[0],
        )
    output = user_path(output, Path.cwd())
    return tuple(
        _trial(row, column, seed, settings, clients, output / slug(row) / f"seed-{seed}")
        for seed in seeds
        for row, settings in applied.items()
    )


@contextmanager
def prefixed(where: str) -> Iterator[None]:
    """Context whose refusals begin with where they are from."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}", error.code, **error.values) from None


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


def _trial(
    row: str, column: str, seed: int, settings: Overrides, clients: int, directory: Path
) -> Trial:
    with prefixed(f"Run {row!r}"):
        # Without the output, which may hold a run already.
        config = resolve({**settings, "seed": seed}, Path.cwd())
    flat = {key: value for key, value in config.to_flat().items() if key not in LOCATION_SETTINGS}
    config = config.model_copy(update={"output": str(directory)})
    content = user_content(config)
    return Trial(row, seed, directory, config, flat | {CLIENTS: clients}, column, content)


def _split_notes(configs: Mapping[str, RunConfig]) -> Iterator[str]:
    """A sentence for each setting of the data by which the runs differ."""
    data = {
        name: {
            "dataset": config.dataset,
            "image-size": config.image_size,
            "client-data": config.client_data,
            **split_settings(config),
        }
        for name, config in configs.items()
    }
    for key in dict.fromkeys(key for settings in data.values() for key in settings):
        # Only runs with a partition have settings of its table.
        names: dict[Scalar, list[str]] = {}
        for name in (name for name, settings in data.items() if key in settings):
            names.setdefault(data[name][key], []).append(name)
        if len(names) > 1:
            values = "; ".join(f"{value!r} for {', '.join(of)}" for value, of in names.items())
            yield f"The runs do not share their data splits, {key} differs: {values}."


def _idle_notes(
    rows: Mapping[str, Overrides], shared: Overrides, configs: Mapping[str, RunConfig]
) -> Iterator[str]:
    """A sentence for each run that settings of all runs do not reach."""
    for name, config in configs.items():
        method = find_method(config.method)
        if unused := sorted(method.idle & (shared.keys() - rows[name].keys())):
            length = f"; it has {config.num_rounds} rounds" if method.trains else ""
            yield f"Run {name!r} does not use {', '.join(unused)}{length}."
