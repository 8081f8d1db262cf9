"""Stored results: a JSON file for each table and size, and the check that results are valid."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.store import SUMMARY
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import Size
from fedul_flwr.experiments.table_plan import START_PREFIX
from fedul_flwr.experiments.trial import (
    Change,
    Key,
    TrialResult,
    changed_settings,
    changes_text,
    digest,
    metrics_of,
)

Result = Mapping[str, Any]
"""The stored result of one trial."""

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


@dataclass(frozen=True)
class ResultFile:
    """The file with the results of a table at one size.

    Attributes
    ----------
    folder : folder of all results.
    table : name of the table.
    tuned : whether the settings are those that a search chose; such results have their own file.
    """

    folder: Path
    table: str
    size: Size
    tuned: bool = False

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._path(".tuned" if self.tuned else "")

    @property
    def searches(self) -> Path:
        """Path of the file with the table's searches at this size."""
        return self._path(".search")

    @property
    def kind(self) -> str:
        """Size, and whether the settings are chosen by a search: ``quick, tuned``."""
        return f"{self.size}, tuned" if self.tuned else self.size

    def _path(self, suffix: str) -> Path:
        quick = ".quick" if self.size == "quick" else ""
        return self.folder / f"{self.table}{quick}{suffix}.json"

    def command(self, key: Key | None = None) -> str:
        """The command that makes one result, or all of them."""
        words = ["fedul-flwr", "reproduce", self.table]
        words += ["--quick"] if self.size == "quick" else []
        words += ["--tuned"] if self.tuned else []
        if key is not None:
            row, column, seed = key
            words += ["--rows", row, "--columns", column, "--seeds", str(seed)]
        return shlex.join(words)

    def read(self) -> dict[Key, Result]:
        """The results; without the file there are none."""
        records = read_records(self.path, "runs", "results", "run", _PARTS)
        return {(run["row"], run["column"], run["seed"]): run for run in records}

    def add(self, new: Iterable[TrialResult], local_copies: Container[str]) -> None:
        """Store the results of finished trials; a result replaces an earlier one of its trial.

        Parameters
        ----------
        local_copies : names of the data sets that were read from a local copy.
        """
        results = self.read()
        for one in new:
            results[one.trial.key] = self._result(
                one, one.trial.settings["dataset"] in local_copies
            )
        ordered = sorted(results.values(), key=lambda run: (run["column"], run["row"], run["seed"]))
        write_records(self.path, self.table, "runs", ordered)

    def _result(self, result: TrialResult, is_local: bool) -> dict[str, Any]:
        """The stored form of a finished trial: metrics, errors over rounds, settings, provenance.

        It has no paths: a data set has the name that the experiment has for it.
        """
        run, trial = result.run, result.trial
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
            **({"content": dict(trial.content)} if trial.content else {}),
            "data": f"{settings['dataset']}{', local copy' if is_local else ''}",
            "command": self.command(trial.key),
            **provenance(run.environment or {}, finished),
        }

    def check(self, key: Key, result: Result, now: Mapping[str, Any] | None) -> None:
        """Refuse a result that the experiment as it is now would not make.

        Parameters
        ----------
        now : settings of the trial (see ``Trial``); None if the table has no such trial.
        """
        row, column, seed = key
        trial = f"row {row!r}, column {column!r}, seed {seed}"
        name = f"The result ({self.kind}) of {self.table}, {trial}"
        if now is None:
            raise UserError(
                f"{name} belongs to no run of the table: remove it from the results.",
                "result-edited",
            )
        again = f"run it again: {self.command(key)}"
        if part := edited(result):
            raise UserError(
                f"{name} does not have the hash of its {part}, so it was edited: {again}",
                "result-edited",
            )
        if changed := differences(result["settings"], now):
            raise UserError(
                f"{name} was made with other settings ({changes_text(changed)}): {again}",
                "result-of-other-settings",
            )


def read_records(
    file: Path, key: str, content: str, noun: str, parts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The records under ``key`` of a JSON file; without the file there are none.

    Parameters
    ----------
    content, noun : words for the file's content and for one record, for messages.
    parts : type of each key that a record must have.
    """
    stored = read_object(file)
    if stored is None:
        return []
    records = stored.get(key)
    if not isinstance(records, list):
        raise UserError(
            f"{file} is not a file of {content}: it has no list {key!r}.", "result-file-wrong"
        )
    for position, record in enumerate(records, start=1):
        for part, kind in parts.items():
            if not isinstance(record, dict) or not isinstance(record.get(part), kind):
                raise UserError(
                    f"{file}, {noun} {position}: key {part!r} is missing or has a wrong type.",
                    "result-file-wrong",
                )
    return records


def write_records(file: Path, table: str, key: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace a JSON file of records, with a line for each part of a record and each of its trials.

    Short lines make changes readable in a version control system.
    """
    body = ",\n".join(
        "  {\n"
        + ",\n".join(f"   {json.dumps(k)}: {_json(k, part)}" for k, part in one.items())
        + "\n  }"
        for one in records
    )
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


def provenance(environment: Mapping[str, Any], date: datetime) -> dict[str, Any]:
    """Commit, hardware, versions and date of a run."""
    return {
        "commit": environment.get("git_commit"),
        "hardware": {key: environment.get(key) for key in _HARDWARE},
        "versions": {"python": environment.get("python"), **environment.get("versions", {})},
        "date": date.isoformat(timespec="seconds"),
    }


def age(results: Mapping[Key, Result]) -> str:
    """Date and commit of the oldest result: `` since 2026-11-02 (4ab1c09e)``."""
    oldest = min(results.values(), key=lambda one: str(one.get("date")))
    commit = str(oldest["commit"])[:8] if oldest.get("commit") else "commit unknown"
    return f" since {str(oldest.get('date'))[:10]} ({commit})"


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Settings that changed since a result was made with the settings ``then``.

    A setting that is newer than the result must have its default.
    """
    changed: list[Change] = []
    for prefix in ("", START_PREFIX):
        parts = (
            {
                key.removeprefix(prefix): value
                for key, value in settings.items()
                if key.startswith(START_PREFIX) == bool(prefix)
            }
            for settings in (then, now)
        )
        changed += [(prefix + key, was, new) for key, was, new in changed_settings(*parts)]
    return changed
