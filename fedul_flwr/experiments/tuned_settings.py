"""Runs with the settings that a search chose, on seeds that it never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.search_file import (
    chosen_settings,
    read_searches,
    refuse_seen,
    searches_file,
)
from fedul_flwr.experiments.search_plan import named_of
from fedul_flwr.experiments.table_file import Size, Table
from fedul_flwr.experiments.table_plan import Machine, plan_column
from fedul_flwr.experiments.trial_plan import Overrides, Plan


def tuned_rows(
    table: Table,
    wanted: Mapping[str, Sequence[str]],
    size: Size,
    seeds: Sequence[int],
    machine: Machine,
    results: Path,
) -> dict[str, dict[str, Overrides]]:
    """What the searches of a table chose, by column and row.

    Parameters
    ----------
    wanted : rows of each column.
    seeds : that are to be run with it.
    results : folder of the searches.

    Raises
    ------
    UserError
        If a row has no search, or one that was made with other settings, or that saw a seed.
    """
    file = searches_file(results, table.name, size)
    searches = read_searches(file)
    again = f"search it with fedul-flwr tune {table.name}{' --quick' if size == 'quick' else ''}"
    found: dict[str, dict[str, Overrides]] = {}
    for column, rows in wanted.items():
        named = plan_column(table, column, size, seeds[:1], machine).named
        found[column] = {}
        for row in rows:
            now = named[row, seeds[0]]
            found[column][row] = chosen_settings(file, searches, (row, column), now, again)
            refuse_seen(seeds, [searches[row, column]])
    return found


def tuned_runs(plan: Plan, file: Path) -> dict[str, Overrides]:
    """Runs of a comparison with the settings that their search chose on top of their own.

    Parameters
    ----------
    plan : the comparison with the runs' own settings.
    file : ``search.json`` of ``fedul-flwr tune --runs``.

    Raises
    ------
    UserError
        If there is no such file, or as :func:`tuned_rows`.
    """
    if not file.is_file():
        raise UserError(f"--tuned {file} is no file: fedul-flwr tune --runs writes one.")
    searches = read_searches(file)
    found: dict[str, Overrides] = {}
    for cell in plan.cells:
        if cell.run in found:
            continue
        now = named_of(cell, plan.num_supernodes)
        again = "search it with fedul-flwr tune --runs"
        chosen = chosen_settings(file, searches, (cell.run, ""), now, again)
        refuse_seen(plan.seeds, [searches[cell.run, ""]])
        found[cell.run] = {**plan.runs[cell.run], **chosen}
    return found
