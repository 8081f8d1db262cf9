"""``fedul-flwr watch``: a run while it runs, from what it has on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.data.run_files.records import AWAY, FAILED, OWNERS, missing, number
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results.facts import duration, format_bytes, percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ROUNDS = 8
"""How many of the last rounds are shown."""


def state(run: Run) -> str:
    """How far a run is, and the time that the rest needs at the pace so far."""
    done, planned = len(run.lines), int(run.settings.get("num-rounds", 0))
    if run.summary is not None:
        return f"finished after {done} rounds"
    if run.error:
        return f"ended after {done} rounds: {run.error}"
    if not done:
        return "waiting for its first round"
    seconds = sum(float(line["seconds"]) for line in run.lines) / done
    return f"round {done + 1} of {planned}, about {duration(seconds * (planned - done))} left"


def show_run(run: Run) -> RenderableType:
    """Owners, the last rounds with errors and seconds, and what has left the owners."""
    from rich.console import Group
    from rich.text import Text

    title = Text(f"{run.path}: {run.label}; {state(run)}", style="bold")
    parts: list[RenderableType] = [title, _rounds(run), _owners(run)]
    sent = sum(int(line["bytes_up"]) for line in run.lines)
    parts.append(Text(f"Sent by all clients so far: {format_bytes(sent)}"))
    for entry in run.disclosures.sent if run.disclosures else ():
        parts.append(Text(f"  {entry.what}: to {entry.reader}; {entry.often}"))
    return Group(*parts)


def watch(directory: Path, every: float, show: Callable[[RenderableType], None]) -> None:
    """Show a run every so many seconds, until it has ended."""
    while True:
        run = Run.read(directory)
        show(show_run(run))
        if run.finished or run.error:
            return
        time.sleep(every)


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for name in names:
        table.add_column(name)
    return table


def _rounds(run: Run) -> RenderableType:
    best = run.best_round()
    table = _table("round", "seconds", "clients", "validation", "test", "loss", "failed", "away")
    for line in run.lines[-ROUNDS:]:
        loss = number(line.get("surrogate_loss", line.get("loss")))
        table.add_row(
            f"{line['round']}{' *' if line['round'] == best else ''}",
            f"{line['seconds']:.1f}",
            str(line["clients"]),
            *(percent(number(line.get(f"{kind}_error"))) for kind in ("validation", "test")),
            "–" if loss is None else f"{loss:.4f}",
            *(", ".join(line.get(key, ())) for key in (FAILED, AWAY)),
        )
    return table


def _owners(run: Run) -> RenderableType:
    table = _table("owner", "points", "rounds", "failed", "state")
    absent = missing(run.lines[-1]) if run.lines else {}
    for client in run.clients:
        label = f"Client {client.id}" + (f" ({client.name})" if client.name else "")
        table.add_row(
            label,
            "–" if client.num_points is None else str(client.num_points),
            str(_count(run, OWNERS, client.name)) if client.name else "–",
            str(_count(run, FAILED, label)),
            f"{client.status}: {client.reason}"
            if client.reason
            else absent.get(label) or client.status,
        )
    return table


def _count(run: Run, key: str, name: str) -> int:
    """In how many rounds a line names somebody."""
    return sum(name in line.get(key, ()) for line in run.lines)
