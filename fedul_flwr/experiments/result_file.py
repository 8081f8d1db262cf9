"""Stored results: a JSON file for each table and size, and the check that results are valid."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.matrix import Size
from fedul_flwr.experiments.metrics import metrics_of
from fedul_flwr.experiments.table_plan import START_PREFIX
from fedul_flwr.experiments.trial import (
    Change,
    Key,
    TrialResult,
    changed_settings,
    changes_text,
    digest,
)
from fedul_flwr.results.records import write_atomically
from fedul_flwr.results.store import SUMMARY

Result = Mapping[str, Any]
"""The result of one trial as :func:`make_result` makes it."""

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
"""Keys that every result must have, and their types; there are more."""
_HARDWARE = ("processor", "cpu_count", "gpu", "arithmetic")


def results_file(folder: Path, table: str, size: Size, *, tuned: bool = False) -> Path:
    """File of a table's results; results of tuned runs have a file of their own."""
    quick, apart = ".quick" if size == "quick" else "", ".tuned" if tuned else ""
    return folder / f"{table}{quick}{apart}.json"


def read_results(file: Path) -> dict[Key, Result]:
    """Results of a file; without the file there are none.

    Raises
    ------
    UserError
        Naming the file if it is not a file of :func:`write_results`, and the missing key.
    """
    found = read_records(file, "runs", "results", "run", _PARTS)
    return {(run["row"], run["column"], run["seed"]): run for run in found}


def write_results(file: Path, table: str, results: Iterable[Result]) -> None:
    """Replace a file of results; they are sorted."""
    ordered = sorted(results, key=lambda run: (run["column"], run["row"], run["seed"]))
    write_records(file, table, "runs", ordered)


def read_records(
    file: Path, key: str, content: str, noun: str, parts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The records under ``key`` of a JSON file; without the file there are none.

    Parameters
    ----------
    content, noun : words for the file's content and for one record, for messages.
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
                    f"{file}, {noun} {position}: key {part!r} is missing or has a wrong type."
                )
    return found


def write_records(file: Path, table: str, key: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace a JSON file of records, with a line for each part of a record and each of its trials.

    Short lines make changes readable in a version control system.
    """
    body = ",\n".join(
        "  {\n" + ",\n".join(f"   {json.dumps(k)}: {_json(k, part)}" for k, part in one.items())
        + "\n  }"
        for one in records
    )  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    head = f'{{\n "table": {json.dumps(table)},\n {json.dumps(key)}: [\n'
    write_atomically(file, f"{head}{body}\n ]\n}}\n")


def _json(key: str, part: Any) -> str:
    if key != "trials":
        return json.dumps(part)
    return "[\n" + ",\n".join(f"    {json.dumps(trial)}" for trial in part) + "\n   ]"


def edited(result: Result) -> str | None:
    """The part of a result that does not have the hash that was written with it; None if all do."""
    if result["hash"] != digest(result["settings"]):
        return "settings"
    figures = {key: result[key] for key in ("figures", "curve")}
    return None if result["figures-hash"] == digest(figures) else "figures"


def make_result(
    table: str, size: Size, found: TrialResult, *, local_data: bool, tuned: bool = False
) -> dict[str, Any]:
    """The stored result of a finished trial: metrics, errors over rounds, settings, provenance.

    It has no paths: data sets have the names of the experiment, and ``local copy`` says that a
    local copy was read.
    """
    run, trial = found.run, found.trial
    assert run is not None, "only finished trials have a run"
    rounds, errors = run.series("test_error")
    settings = dict(sorted(trial.settings.items()))
    figures = {"figures": metrics_of(run), "curve": {"rounds": rounds, "test_error": errors}}
    finished = datetime.fromtimestamp((run.directory / SUMMARY).stat().st_mtime, UTC)
    return {
        "row": trial.row,
        "column": trial.column,
        "seed": trial.seed,
        **figures,
        "figures-hash": digest(figures),
        "seconds": (run.summary or {}).get("seconds_total"),
        "hash": digest(settings),
        "settings": settings,
        "data": f"{settings['dataset']}{', local copy' if local_data else ''}",
        "command": command(table, size, trial.key, tuned=tuned),
        **provenance(run.environment or {}, finished),
    }


def provenance(environment: Mapping[str, Any], date: datetime) -> dict[str, Any]:
    """Commit, hardware, versions and date of a run."""
    return {
        "commit": environment.get("git_commit"),
        "hardware": {key: environment.get(key) for key in _HARDWARE},
        "versions": {"python": environment.get("python"), **environment.get("versions", {})},
        "date": date.isoformat(timespec="seconds"),
    }


def command(table: str, size: Size, key: Key | None = None, *, tuned: bool = False) -> str:
    """The command that makes one result of a table, or all results."""
    words = ["fedul-flwr", "reproduce", table, *(["--quick"] if size == "quick" else [])]
    words += ["--tuned"] if tuned else []
    if key is not None:
        row, column, seed = key
        words += ["--rows", row, "--columns", column, "--seeds", str(seed)]
    return shlex.join(words)


def differences(result: Result, now: Mapping[str, Any]) -> list[Change]:
    """Settings that changed since a result was made.

    A setting that is newer than the result must have its default.
    """
    changed: list[Change] = []
    for prefix in ("", START_PREFIX):
        then, present = (
            {
                key.removeprefix(prefix): value
                for key, value in settings.items()
                if key.startswith(START_PREFIX) == bool(prefix)
            }
            for settings in (result["settings"], now)
        )
        changed += [(prefix + key, was, new) for key, was, new in changed_settings(then, present)]
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
    """Refuse a result that the experiment as it is now would not make.

    Parameters
    ----------
    now : settings of the trial (see ``Trial``); None if the table has no such trial.

    Raises
    ------
    UserError
        Naming the result, the difference, and the command that makes it again.
    """
    row, column, seed = key
    kind = f"tuned {size}" if tuned else size
    name = f"The {kind} result of {table}, row {row!r}, column {column!r}, seed {seed}"
    if now is None:
        raise UserError(f"{name} belongs to no run of the table: remove it from the results.")
    again = f"run it again: {command(table, size, key, tuned=tuned)}"
    if part := edited(result):
        raise UserError(f"{name} does not have the hash of its {part}, so it was edited: {again}")
    if changed := differences(result, now):
        raise UserError(f"{name} was made with other settings ({changes_text(changed)}): {again}")
