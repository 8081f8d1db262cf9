"""The settings of a row as a flat TOML file, for ``fedul-flwr run -c`` and plain ``flwr run``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table import START_FROM, Size, Table, pick
from fedul_flwr.experiments.table_plan import START
from fedul_flwr.experiments.trial_plan import Overrides, apply


def flat_file(table: Table, column: str, size: Size, row: str | None) -> str:
    """Settings of a row in a column, a line each, below comments with the commands that run it.

    The row ``start`` is the run whose model the column starts from. None is the only row of the
    column or, if it has several rows, the settings that they share.
    """
    if table.benchmark:
        raise UserError(
            f"--print has no effect on {table.name}: a benchmark measures it.",
            "option-without-effect",
            option="--print",
        )
    one = table.column(_one(column, table.names, "column"), size)
    if row is None and len(one.rows) == 1:
        (row,) = one.rows
    if row == START and one.start is not None:
        settings: Overrides = {**apply(one.start, {}), "output": one.settings[START_FROM]}
    else:
        settings_of_row = {} if row is None else one.rows[_one(row, list(one.rows), "row")]
        settings = apply(one.settings, settings_of_row)
    quick = ["--quick"] if size == "quick" else []
    comments = [
        f"{', '.join([table.name, one.name, row or 'all rows', *(['quick'] if quick else [])])}.",
        f"{table.title}. {table.source}.",
        f"fedul-flwr run -c FILE --num-supernodes {one.clients}",
        f"flwr run . --run-config FILE --federation-config 'num-supernodes={one.clients}' --stream",
    ]
    if one.start is not None and row != START:
        first = ["fedul-flwr", "reproduce", table.name, "--print", one.name, "--rows", START]
        comments.append(f"Run first what this prints: {shlex.join([*first, *quick])}")
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
