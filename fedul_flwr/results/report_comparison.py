"""Read the directory of a comparison for a report."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.csv_cells import read_cell
from fedul_flwr.errors import UserError

_TABLE, _TRIALS, _PICTURE = "comparison.md", "trials.csv", "comparison.png"
_TRIAL_COLUMNS = {
    "run": "run",
    "seed": "seed",
    "status": "status",
    "test_error": "error (%)",
    "best_round": "best round",
    "directory": "directory",
}


@dataclass(frozen=True)
class Comparison:
    """The files of a comparison, read.

    Attributes
    ----------
    name : name of its directory.
    rows : the table as printed, by column names; the first cell of a row is the run's name.
    best : rows of the runs that are among the best.
    notes : sentences below the table, in two groups: its meaning, and its conditions.
    trials : one row per trial, by column names.
    picture : PNG; None if it is missing.
    """

    name: str
    rows: list[dict[str, str]]
    best: list[int]
    notes: tuple[list[str], list[str]]
    trials: list[dict[str, str]]
    picture: bytes | None


def is_comparison(directory: Path) -> bool:
    """Whether the directory has the files of a comparison."""
    return all((directory / name).is_file() for name in (_TABLE, _TRIALS))


def read_comparison(directory: Path) -> Comparison:
    """Read ``comparison.md``, ``trials.csv`` and ``comparison.png``.

    Raises
    ------
    UserError
        If a file cannot be read or has no table.
    """
    try:
        text = regular_file(directory / _TABLE).read_text(encoding="utf-8")
        with regular_file(directory / _TRIALS).open(encoding="utf-8", newline="") as file:
            trials = [
                {
                    words: _rounded(key, read_cell(row.get(key) or "–"))
                    for key, words in _TRIAL_COLUMNS.items()
                }
                for row in csv.DictReader(file)
            ]
        picture = directory / _PICTURE
        png = picture.read_bytes() if picture.is_file() else None
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"Cannot read the comparison in {directory}: {error}.") from error
    above, _, below = text.partition("\n## ")
    lines = [line for line in above.splitlines() if line.startswith("|")]
    if len(lines) < 3:
        raise UserError(f"{directory / _TABLE} holds no table.")
    head, _, *rows = map(_split, lines)
    return Comparison(
        name=directory.resolve().name,
        rows=[dict(zip(map(_plain, head), map(_plain, row), strict=False)) for row in rows],
        best=[at for at, row in enumerate(rows) if any(cell.startswith("**") for cell in row)],
        notes=(_notes(above), _notes(below)),
        trials=trials,
        picture=png,
    )


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _notes(text: str) -> list[str]:
    return [_plain(line[2:]) for line in text.splitlines() if line.startswith("- ")]


def _plain(markdown: str) -> str:
    """Text without marks of emphasis and code, and without escapes."""
    return re.sub(r"\\(.)|[*`]", lambda found: found[1] or "", markdown)


def _rounded(key: str, value: str) -> str:
    return f"{float(value):.2f}" if key == "test_error" and value != "–" else value
