"""What a comparison is to run: named runs, seeds, and one checked cell for each pair of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from fedul_flwr.config.base import Scalar, unknown_key
from fedul_flwr.config.overrides import flatten, read_toml
from fedul_flwr.config.run_config import RunConfig, default_flat, keys_in_use, resolve
from fedul_flwr.data.split import split_settings
from fedul_flwr.errors import UserError
from fedul_flwr.methods import find_method

Overrides = Mapping[str, Scalar]
T = TypeVar("T")

_NOT_SETTABLE = {
    "seed": "every run gets each of --seeds",
    "output": "every run has its place below --output",
    "resume": "what was interrupted goes on by itself",
}


@dataclass(frozen=True)
class Cell:
    """One run with one seed; ``config.output`` is ``directory``."""

    run: str
    seed: int
    directory: Path
    config: RunConfig

    @property
    def title(self) -> str:
        """The cell in words."""
        return f"{self.run}, seed {self.seed}"

    @property
    def trains(self) -> bool:
        """Whether it has rounds; if not, its clients label their points once."""
        return find_method(self.config.method).trains


@dataclass(frozen=True)
class Plan:
    """A comparison that was checked.

    Attributes
    ----------
    runs : own settings of every run by its name.
    shared : settings of all runs, as they were given.
    seeds : what every run is trained with.
    num_supernodes : number of clients.
    output : directory of the tables; cells lie below it.
    cells : in the order they run, all runs with the first seed first.
    split_warnings : a sentence for each setting by which the runs' splits differ.
    """

    runs: Mapping[str, Overrides]
    shared: Overrides
    seeds: tuple[int, ...]
    num_supernodes: int
    output: Path
    cells: tuple[Cell, ...]
    split_warnings: tuple[str, ...]


def read_runs(path: Path) -> dict[str, dict[str, Scalar]]:
    """Runs of a TOML file, in its order: every top-level table holds the settings of one.

    Raises
    ------
    UserError
        If the file cannot be read, has no table, or a setting outside of all.
    """
    content = read_toml(path)
    for key, value in content.items():
        if not isinstance(value, dict):
            raise UserError(
                f"{path}: {key} = {value!r} is in no table. Each table is a run; "
                "settings of all runs go to --run-config."
            )
    if not content:
        raise UserError(f"{path} has no table; each one is a run.")
    return {name: flatten(table) for name, table in content.items()}


def method_runs(text: str) -> dict[str, dict[str, Scalar]]:
    """One run, with defaults, for each method of a list such as ``fedul,supervised``."""
    return {name: {"method": name} for name in _distinct(_parts(text), "--methods")}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of a list such as ``0,1,2``.

    Raises
    ------
    UserError
        If it is empty, names a seed twice, or anything but whole numbers from 0 on.
    """
    try:
        seeds = [int(part) for part in _parts(text)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise UserError(f"--seeds {text!r} must be whole numbers from 0 on, such as 0,1,2.")
    return tuple(_distinct(seeds, "--seeds"))


def slug(name: str) -> str:
    """A name for directories: lower-case letters, digits, dashes."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:80]


def make_plan(
    runs: Mapping[str, Overrides],
    shared: Overrides,
    seeds: Sequence[int],
    num_supernodes: int,
    output: Path,
) -> Plan:
    """Check all settings of all cells before anything starts.

    Parameters
    ----------
    runs : settings of each run, which win over shared ones.
    shared : settings of all runs; a key of a table applies to the runs that use the table.
    output : relative paths here and in settings start from the working directory.

    Raises
    ------
    UserError
        Naming the run and the setting that is refused.
    """
    _check_names(runs)
    owners = {"--run-config": shared} | {f"run {name!r}": own for name, own in runs.items()}
    for owner, settings in owners.items():
        for key in settings.keys() & _NOT_SETTABLE.keys():
            raise UserError(f"Setting {key} cannot be in {owner}: {_NOT_SETTABLE[key]}.")
    applied = _applied(runs, shared)
    output = Path.cwd() / output.expanduser()
    cells = tuple(
        _cell(name, seed, settings, output) for seed in seeds for name, settings in applied.items()
    )
    first = {cell.run: cell.config for cell in reversed(cells)}
    return Plan(
        runs=runs,
        shared=shared,
        seeds=tuple(seeds),
        num_supernodes=num_supernodes,
        output=output,
        cells=cells,
        split_warnings=tuple(_split_warnings({name: first[name] for name in runs})),
    )


def _check_names(runs: Iterable[str]) -> None:
    by_slug: dict[str, str] = {}
    for name in runs:
        if not slug(name) or not name.isprintable():
            raise UserError(f"Run {name!r} needs a name with a letter or a digit, in one line.")
        other = by_slug.setdefault(slug(name), name)
        if other != name:
            raise UserError(
                f"Runs {other!r} and {name!r} would share the directory {slug(name)!r}: "
                "rename one of them."
            )


def apply(shared: Overrides, own: Overrides) -> dict[str, Scalar]:
    """Settings of a run on top of those shared settings that its method, base and partition use."""
    defaults = default_flat()
    known = {key: value for key, value in {**shared, **own}.items() if key in defaults}
    in_use = keys_in_use(known)
    return {**{key: shared[key] for key in shared if key in in_use}, **own}


def _applied(runs: Mapping[str, Overrides], shared: Overrides) -> dict[str, dict[str, Scalar]]:
    """Settings of each run on top of those shared settings that it uses."""
    defaults = default_flat()
    for key in shared:
        if key not in defaults:
            raise unknown_key(key, defaults)
    applied = {}
    used: set[str] = set()
    for name, own in runs.items():
        try:
            applied[name] = apply(shared, own)
        except UserError as error:
            raise _of_run(name, error) from None
        used |= applied[name].keys()
    for key in shared:
        if key not in used:
            raise UserError(
                f"Setting {key} in --run-config has no effect in any of the runs: leave it out."
            )
    return applied


def _cell(name: str, seed: int, settings: Overrides, output: Path) -> Cell:
    directory = output / slug(name) / f"seed-{seed}"
    try:
        # Without its output, which may hold the cell already.
        config = resolve({**settings, "seed": seed}, Path.cwd())
    except UserError as error:
        raise _of_run(name, error) from None
    config = config.model_copy(update={"output": str(directory)})
    return Cell(run=name, seed=seed, directory=directory, config=config)


def _of_run(name: str, error: UserError) -> UserError:
    return UserError(f"Run {name!r}: {error}")


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
        # A partition's table is compared among the runs that have this partition.
        names_by_value: dict[Scalar, list[str]] = {}
        for name, settings in data.items():
            if key in settings:
                names_by_value.setdefault(settings[key], []).append(name)
        if len(names_by_value) > 1:
            values = "; ".join(
                f"{value!r} for {', '.join(names)}" for value, names in names_by_value.items()
            )
            yield f"The runs do not share their data splits, {key} differs: {values}."


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _distinct(values: Sequence[T], option: str) -> Sequence[T]:
    if not values:
        raise UserError(f"{option} names nothing; separate several by commas.")
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{option} names {value} twice.")
    return values
