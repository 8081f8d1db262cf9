"""What is on disk of a comparison's cells, and whether it belongs to the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedul_flwr.config.run_config import (
    LAST_MODEL,
    OF_THE_MACHINE,
    RunConfig,
    default_flat,
    resolve,
)
from fedul_flwr.engine.simulate import plan_rounds
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial_plan import Cell
from fedul_flwr.results.records import Run, number, read_config, read_run
from fedul_flwr.results.store import CONFIG, ERROR, SUMMARY, RunDirectory

Status = Literal["finished", "failed", "interrupted", "to do"]


@dataclass(frozen=True)
class CellResult:
    """How far a cell is.

    Attributes
    ----------
    cell : which one.
    status : only a finished one counts.
    run : what its directory holds, of a finished cell.
    reason : why it failed, in one line.
    """

    cell: Cell
    status: Status
    run: Run | None = None
    reason: str = ""

    def figure(self, key: str) -> float | None:
        """A number of the summary, such as ``test_error``; None where it is not known."""
        return number((self.run.summary or {}).get(key)) if self.run else None


def read_cell(cell: Cell) -> CellResult:
    """Look at a cell's directory; it need not exist.

    A run that ended with fewer rounds than are asked for now is an interrupted one. One without
    rounds is finished or not begun: there is nothing to go on with.
    """
    run = read_run(cell.directory) if (cell.directory / CONFIG).exists() else None
    if run and run.summary and _is_complete(cell, run.summary):
        return CellResult(cell, "finished", run)
    reason = _reason(cell.directory)
    if reason:
        return CellResult(cell, "failed", reason=reason)
    return CellResult(cell, "interrupted" if _has_model(cell) else "to do")


def check_cells(cells: Iterable[Cell], num_supernodes: int) -> None:
    """Refuse to go on with cells that were run with other settings than where and on what they ran.

    Cells without a trained round hold nothing to go on with and start anew.

    Raises
    ------
    UserError
        Naming the cell, the setting and both values.
    """
    for cell in cells:
        if not (_has_model(cell) or (cell.directory / SUMMARY).exists()):
            continue
        for key, was, now in _changes(cell, num_supernodes):
            raise UserError(
                f"{cell.directory} was run with {key} = {was!r}, not {now!r}: "
                "name another --output for a comparison with changed settings, or remove that one."
            )


def starting_config(cell: Cell) -> RunConfig:
    """Configuration that starts the cell, or goes on after its last complete round as it began.

    So it goes on on the device that it began on.
    """
    if not _has_model(cell):
        return cell.config
    config = resolve({"resume": str(cell.directory)}, Path.cwd())
    if config.num_rounds != cell.config.num_rounds:
        config = plan_rounds(config, cell.config.num_rounds)
    return config


def keep_reason(cell: Cell, error: Exception) -> str:
    """Leave why a cell failed in its directory, unless the run did; returns it in one line."""
    directory = RunDirectory(cell.directory)
    if not _reason(cell.directory):
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.write_error(text)
    return _reason(cell.directory)


def forget_reason(cell: Cell) -> None:
    """Remove what :func:`keep_reason` left, before the cell is tried again."""
    (cell.directory / ERROR).unlink(missing_ok=True)


def _is_complete(cell: Cell, summary: Mapping[str, Any]) -> bool:
    if not cell.trains:
        return summary.get("status") == "completed"
    if summary.get("budget_exhausted"):
        return True
    return int(summary.get("rounds", 0)) >= cell.config.num_rounds


def _has_model(cell: Cell) -> bool:
    return (cell.directory / LAST_MODEL).exists()


def _reason(directory: Path) -> str:
    try:
        text = (directory / ERROR).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())


def changed_settings(
    was: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    """Key and both values where two flat settings differ.

    A setting that only one of them has, as it is newer than the other, had its default's effect;
    one that there is no more is left out.
    """
    defaults = default_flat()
    for key in {**now, **was}:
        if key not in now and key not in defaults:
            continue
        before, after = (flat.get(key, defaults.get(key)) for flat in (was, now))
        if before != after:
            yield key, before, after


def _changes(cell: Cell, num_supernodes: int) -> Iterable[tuple[str, Any, Any]]:
    """Key, value on disk and value asked for, where they differ."""
    saved, _ = read_config(cell.directory)
    for key, was, now in changed_settings(saved, cell.config.to_flat()):
        if key in OF_THE_MACHINE:
            continue
        if key == "selection" and now == "auto":  # the run writes what it chose
            continue
        if key == "num-rounds" and not cell.trains:
            continue
        if key == "num-rounds" and isinstance(was, int) and was < cell.config.num_rounds:
            continue
        yield key, was, now
    run = read_run(cell.directory)
    clients = (run.summary or {}).get("num_clients")
    if clients is None and run.federation and cell.config.on_client_failure == "stop":
        clients = len(run.federation.clients)
    if clients not in (None, num_supernodes):
        yield "num-supernodes", clients, num_supernodes
