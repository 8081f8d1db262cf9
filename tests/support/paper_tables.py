"""Settings of the shipped tables, for tests."""

from functools import cache
from pathlib import Path

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import resolve
from fedul_flwr.experiments.table import Size, Table, read_table, table_names
from fedul_flwr.experiments.trial_plan import Overrides, apply

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"


@cache
def table(name: str) -> Table:
    """A table by its name."""
    return read_table(EXPERIMENTS, name)


def columns(*prefixes: str) -> list[tuple[str, str]]:
    """Table and column of all tables whose names begin with a prefix; benchmarks have none."""
    return [
        (name, column)
        for name in table_names(EXPERIMENTS)
        if name.startswith(prefixes) and not table(name).benchmark
        for column in table(name).names
    ]


def column_settings(name: str, column: str, size: Size = "full") -> dict[str, Scalar]:
    """Flat settings that the rows of a column share."""
    return _flat(table(name).column(column, size).settings)


def row_settings(name: str, column: str, row: str, size: Size = "full") -> dict[str, Scalar]:
    """Flat settings of a row in a column."""
    one = table(name).column(column, size)
    return _flat(apply(one.settings, one.rows[row]))


def _flat(settings: Overrides) -> dict[str, Scalar]:
    flat = resolve(settings, ROOT).to_flat()
    return {key: value for key, value in flat.items() if key != "output"}  # it has the time
