"""What is kept of a table's runs: one JSON file a table and size, for people to compare too."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import figures_of
from fedul_flwr.experiments.table_file import Size
from fedul_flwr.experiments.table_plan import ColumnPlan
from fedul_flwr.experiments.trial import CellResult, changed_settings
from fedul_flwr.results.records import write_atomically
from fedul_flwr.results.store import SUMMARY

Result = Mapping[str, Any]
"""One run of a table, as :func:`make_result` makes it."""
Key = tuple[str, str, int]
"""Row, column and seed of a result."""

_START = "start-from:"
_PARTS = {
    "row": str,
    "column": str,
    "seed": int,
    "figures": dict,
    "curve": dict,
    "figures-hash": str,
    "hash": str,
    "settings": dict,
}
"""What every result has, of what there is more."""
_HARDWARE = ("processor", "cpu_count", "gpu", "arithmetic")


def results_file(folder: Path, table: str, size: Size, *, tuned: bool = False) -> Path:
    """Where the results of a table are; those of tuned runs lie apart from the others."""
    quick, apart = ".quick" if size == "quick" else "", ".tuned" if tuned else ""
    return folder / f"{table}{quick}{apart}.json"


def read_results(file: Path) -> dict[Key, Result]:
    """Results of a file, none where there is no file.

    Raises
    ------
    UserError
        Naming the file that is not what :func:`write_results` writes, and the key that is missing.
    """
    found = read_records(file, "runs", "results", "run", _PARTS)
    return {(run["row"], run["column"], run["seed"]): run for run in found}


def read_records(
    file: Path, key: str, content: str, noun: str, parts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The records under ``key`` of a JSON file, none where there is no file.

    Parameters
    ----------
    content, noun : what the file holds and what one record is, for messages.
    parts : type of each key that a record must have.

    Raises
    ------
    UserError
        Naming the file, and the record and key that is wrong.
    """
    if not file.exists():
        return []
    try:
        found = list(json.loads(file.read_text(encoding="utf-8"))[key])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not a file of {content}: {error!r}.") from None
    for position, record in enumerate(found, start=1):
        for part, kind in parts.items():
            if not isinstance(record, dict) or not isinstance(record.get(part), kind):
                raise UserError(
                    f"{file}, {noun} {position}: key {part!r} is missing or of a wrong type."
                )
    return found


def write_results(file: Path, table: str, results: Iterable[Result]) -> None:
    """Replace a file of results, sorted, with a line for each part of a run."""
    ordered = sorted(results, key=lambda run: (run["column"], run["row"], run["seed"]))
    runs = [
        ",\n".join(f"   {json.dumps(key)}: {json.dumps(part)}" for key, part in run.items())
        for run in ordered
    ]
    body = ",\n".join(f"  {{\n{run}\n  }}" for run in runs)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, f'{{\n "table": {json.dumps(table)},\n "runs": [\n{body}\n ]\n}}\n')


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of settings or figures: of their JSON, sorted keys and no spaces, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def edited(result: Result) -> str | None:
    """Which part of a result has not the hash that was written with it; None if all have."""
    if result["hash"] != digest(result["settings"]):
        return "settings"
    figures = {key: result[key] for key in ("figures", "curve")}
    return None if result["figures-hash"] == digest(figures) else "figures"


def make_result(
    table: str,
    size: Size,
    column: ColumnPlan,
    found: CellResult,
    *,
    local_data: bool,
    tuned: bool = False,
) -> dict[str, Any]:
    """What is kept of a finished run: figures, curve, settings and where they come from.

    No paths: data sets go by the experiment's name, ``local copy`` says that a copy was read.
    """
    run, cell = found.run, found.cell
    assert run is not None, "only finished cells have a run"
    summary = run.summary or {}
    rounds, errors = run.series("test_error")
    settings = dict(sorted(column.named[cell.run, cell.seed].items()))
    about = run.environment or {}
    figures = {"figures": figures_of(run), "curve": {"rounds": rounds, "test_error": errors}}
    finished = datetime.fromtimestamp((run.directory / SUMMARY).stat().st_mtime, UTC)
    return {
        "row": cell.run,
        "column": column.column,
        "seed": cell.seed,
        **figures,
        "figures-hash": digest(figures),
        "seconds": summary.get("seconds_total"),
        "hash": digest(settings),
        "settings": settings,
        "data": f"{column.dataset}{', local copy' if local_data else ''}",
        "command": command(table, size, cell.run, column.column, cell.seed, tuned=tuned),
        "commit": about.get("git_commit"),
        "hardware": hardware_of(about),
        "versions": {"python": about.get("python"), **about.get("versions", {})},
        "date": finished.isoformat(timespec="seconds"),
    }


def hardware_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's environment says on what it ran."""
    return {key: about.get(key) for key in _HARDWARE}


def command(
    table: str,
    size: Size,
    row: str | None = None,
    column: str | None = None,
    seed: int = 0,
    *,
    tuned: bool = False,
) -> str:
    """The command that makes a result, or all of a table's."""
    words = ["fedul-flwr", "reproduce", table, *(["--quick"] if size == "quick" else [])]
    words += ["--tuned"] if tuned else []
    if row is not None and column is not None:
        words += ["--rows", row, "--columns", column, "--seeds", str(seed)]
    return shlex.join(words)


def differences(result: Result, now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Key, value then and value now of settings that changed since a result was made.

    A setting that is newer than the result must have its default now.
    """
    then = result["settings"]
    changed: list[tuple[str, Any, Any]] = []
    for prefix in ("", _START):
        parts = [
            {
                key.removeprefix(prefix): value
                for key, value in settings.items()
                if key.startswith(_START) == bool(prefix)
            }
            for settings in (then, now)
        ]
        changed += [(prefix + key, was, new) for key, was, new in changed_settings(*parts)]
    return changed


def check_result(
    table: str,
    size: Size,
    key: Key,
    result: Result,
    now: Mapping[str, Any] | None,
    *,
    tuned: bool = False,
) -> None:
    """Refuse a result that is not of the experiment as it is.

    Parameters
    ----------
    now : named settings of the experiment (see ``ColumnPlan``); None if the table has no such run.

    Raises
    ------
    UserError
        Naming the result and what differs, and how to run it again.
    """
    row, column, seed = key
    kind = f"tuned {size}" if tuned else size
    name = f"The {kind} result of {table}, row {row!r}, column {column!r}, seed {seed}"
    if now is None:
        raise UserError(f"{name} belongs to no run of the table: remove it from the results.")
    again = f"run it again: {command(table, size, row, column, seed, tuned=tuned)}"
    if part := edited(result):
        raise UserError(f"{name} does not have the hash of its {part}, it was edited: {again}")
    if changed := differences(result, now):
        said = "; ".join(f"{key} was {then!r}, is {value!r}" for key, then, value in changed[:3])
        raise UserError(f"{name} was made with other settings ({said}): {again}")
