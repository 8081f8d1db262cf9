"""What is kept of searches, one JSON file a table and size, and who may use what they chose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedul_flwr.config.base import Scalar
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.result_file import differences, digest, hardware_of, read_records
from fedul_flwr.experiments.row_search import best_of
from fedul_flwr.experiments.search_plan import StudyPlan
from fedul_flwr.experiments.table_file import Size
from fedul_flwr.results.records import write_atomically

Found = Mapping[str, Any]
"""The search of one row, as :func:`make_found` makes it."""
Key = tuple[str, str]
"""Row and column of a search."""

_PARTS = {
    "row": str,
    "column": str,
    "criterion": str,
    "selection": str,
    "seed": int,
    "seeds": list,
    "hash": str,
    "settings": dict,
    "search": dict,
    "trials": list,
    "outcome-hash": str,
}
"""What every search has, of what there is more."""
_OUTCOME = ("criterion", "selection", "seeds", "chosen", "search", "trials")
"""Parts that the hash of the outcome is of."""


def make_found(
    plan: StudyPlan, records: Sequence[Mapping[str, Any]], earlier: Found | None, command: str
) -> dict[str, Any]:
    """What is kept of a search.

    Parameters
    ----------
    records : of its trials, see :func:`~fedul_flwr.experiments.row_search.run_study`.
    earlier : the search that this one replaces: its seeds have been seen too.
    """
    task = plan.task
    about: Mapping[str, Any] = next((r["environment"] for r in records if r["environment"]), {})
    trials = [{k: v for k, v in record.items() if k != "environment"} for record in records]
    best = best_of(records)
    settings = dict(sorted(plan.named.items()))
    seeds = {task.seed, *(earlier["seeds"] if earlier else ())}
    found = {
        "row": task.row,
        "column": task.column,
        "criterion": task.criterion.name,
        "selection": task.criterion.selection,
        "seed": task.seed,
        "seeds": sorted(seeds),
        "chosen": None if best is None else _chosen(best, plan),
        "hash": digest(settings),
        "settings": settings,
        "search": task.search.to_json(),
        "trials": trials,
        "seconds": sum(trial["seconds"] for trial in trials),
        "command": command,
        "commit": about.get("git_commit"),
        "hardware": hardware_of(about),
        "versions": {
            "python": about.get("python"),
            **about.get("versions", {}),
            "optuna": version("optuna"),
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return found | {"outcome-hash": outcome_hash(found)}


def outcome_hash(found: Found) -> str:
    """SHA-256 of how a search was made, what it chose and all that it tried."""
    return digest({key: found.get(key) for key in _OUTCOME})


def _chosen(best: Mapping[str, Any], plan: StudyPlan) -> dict[str, Any]:
    """Trial and settings that won; a run with them chooses its round as the trials did."""
    criterion, own = plan.task.criterion, plan.task.given["selection"]
    by_loss = criterion.name == "heldout" and own != criterion.selection
    also = {"selection": criterion.selection} if by_loss else {}
    return {
        "trial": best["trial"],
        "value": best["value"],
        "round": best["round"],
        "settings": {**best["settings"], **also},
    }


def read_searches(file: Path) -> dict[Key, Found]:
    """Searches of a file by row and column, none where there is no file.

    Raises
    ------
    UserError
        Naming the file and what is missing in it, or that it was edited.
    """
    found = read_records(file, "searches", "searches", "search", _PARTS)
    for one in found:
        if one["outcome-hash"] != outcome_hash(one) or one["hash"] != digest(one["settings"]):
            raise UserError(
                f"{file}: the search of row {one['row']!r}, column {one['column']!r} does not have "
                f"its hashes, it was edited: search it again with {one.get('command')}"
            )
    return {(one["row"], one["column"]): one for one in found}


def write_searches(file: Path, name: str, searches: Iterable[Found]) -> None:
    """Replace a file of searches, sorted, with a line for each part and each trial."""
    ordered = sorted(searches, key=lambda one: (one["column"], one["row"]))
    body = ",\n".join(_lines(one) for one in ordered)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, f'{{\n "table": {json.dumps(name)},\n "searches": [\n{body}\n ]\n}}\n')


def _lines(one: Found) -> str:
    parts = []
    for key, part in one.items():
        text = json.dumps(part)
        if key == "trials":
            text = "[\n" + ",\n".join(f"    {json.dumps(trial)}" for trial in part) + "\n   ]"
        parts.append(f"   {json.dumps(key)}: {text}")
    return "  {\n" + ",\n".join(parts) + "\n  }"


def chosen_settings(
    file: Path, searches: Mapping[Key, Found], key: Key, now: Mapping[str, Any], again: str
) -> Mapping[str, Scalar]:
    """Settings that the search of a row chose.

    Parameters
    ----------
    now : named settings of the row; the seed does not count.
    again : command that searches it.

    Raises
    ------
    UserError
        If the row was not searched, its settings have changed since, or no trial was complete.
    """
    row, column = key
    name = f"row {row!r}" + (f", column {column!r}" if column else "")
    found = searches.get(key)
    if found is None:
        raise UserError(f"{file} has no search of {name}: {again}")
    then = {key: value for key, value in found["settings"].items() if key != "seed"}
    same = {key: value for key, value in now.items() if key != "seed"}
    if changed := differences({"settings": then}, same):
        said = "; ".join(f"{key} was {was!r}, is {new!r}" for key, was, new in changed[:3])
        raise UserError(f"The search of {name} was made with other settings ({said}): {again}")
    if found["chosen"] is None:
        raise UserError(f"No trial of the search of {name} came to its end: {again}")
    settings: Mapping[str, Scalar] = found["chosen"]["settings"]
    return settings


def refuse_seen(seeds: Iterable[int], searches: Iterable[Found]) -> None:
    """Refuse seeds that a search saw: what it chose fits their splits by design.

    Raises
    ------
    UserError
        Naming the first of them.
    """
    seen = {seed for found in searches for seed in found["seeds"]}
    for seed in seeds:
        if seed in seen:
            raise UserError(f"Seed {seed} was used by the search; choose others with --seeds.")


def searches_file(folder: Path, table: str, size: Size) -> Path:
    """Where the searches of a table are."""
    return folder / f"{table}{'.quick' if size == 'quick' else ''}.search.json"


def trial_counts(found: Found) -> str:
    """How the trials of a search ended: ``12: 4 complete, 8 pruned``."""
    states = Counter(trial["state"] for trial in found["trials"])
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{len(found['trials'])}: {ended}"
