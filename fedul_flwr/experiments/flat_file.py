"""The settings of a row as a flat TOML file, for ``fedul-flwr run -c`` and plain ``flwr run``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import START_FROM, Size, Table, pick
from fedul_flwr.experiments.table_plan import START, is_run, start_settings, start_table
from fedul_flwr.experiments.trial_plan import Overrides, apply


def flat_file(table: Table, column: str, size: Size, row: str | None) -> str:
    """Settings of a row in a column, a line each, below comments with the commands that run it.

    Parameters
    ----------
    row : ``start`` is the run whose model the column starts from. None is the only row of the
        column or, if it has several rows, the settings that they share.
    """
    if table.settings.benchmark:
        raise UserError(
            f"--print has no effect on {table.name}: a benchmark measures it.",
            "option-without-effect",
            option="--print",
        )
    column = _one(column, list(table.columns), "column")
    rows = table.rows_of(column, size)
    shared = table.settings_of(column, size)
    source = str(shared.get(START_FROM, ""))
    if row is None and len(rows) == 1:
        (row,) = rows
    if row == START and is_run(source):
        settings: Overrides = {**start_settings(source, table.experiments), "output": source}
    elif row is not None:
        row = _one(row, list(rows), "row")
        settings = apply(shared, rows[row])
    else:
        settings = apply(shared, {})
    clients = table.num_clients(column, size)
    quick = ["quick"] if size == "quick" else []
    comments = [
        f"{', '.join([table.name, column, row or 'all rows', *quick])}.",
        f"{table.settings.title}. {table.settings.source}.",
        f"fedul-flwr run -c FILE --num-supernodes {clients}",
        f"flwr run . --run-config FILE --federation-config 'num-supernodes={clients}' --stream",
    ]
    if is_run(source) and row != START:
        first = ["fedul-flwr", "reproduce", start_table(source)[0], "--print", column]
        first += ["--rows", START, *(["--quick"] if quick else [])]
        comments.append(f"Run first what this prints: {shlex.join(first)}")
    if row is None:
        comments.append("It has what all rows share; --rows ROW has the settings of one.")
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join([*(f"# {line}" for line in comments), *lines]) + "\n"


def _one(wanted: str, names: Sequence[str], noun: str) -> str:
    picked = pick(wanted, names, noun)
    if len(picked) > 1:
        raise UserError(
            f"--print takes one {noun}, not {', '.join(picked)}.",
            "option-not-allowed",
            option="--print",
        )
    return picked[0]
