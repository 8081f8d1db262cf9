"""The table of a comparison: one row a run, and everything that has to be said about it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedul_flwr.experiments.ranking import LEVEL, Standing, rank
from fedul_flwr.experiments.trial import CellResult
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.results.plots import format_bytes
from fedul_flwr.results.summary import SHARES, duration

HEADINGS = (
    "run",
    "test error (%)",
    "95 %",
    "p",
    "best round",
    "time",
    "a round",
    "up",
    "down",
    "seeds",
)
"""Columns of :func:`texts`; the first is text, the others numbers. See :func:`headings`."""


@dataclass(frozen=True)
class Row:
    """One run of a comparison; figures are means over its finished cells, None without any."""

    run: str
    standing: Standing
    cells: tuple[CellResult, ...]

    @property
    def finished(self) -> tuple[CellResult, ...]:
        """Its finished cells."""
        return tuple(result for result in self.cells if result.status == "finished")

    @property
    def failed(self) -> int:
        """Number of its failed cells."""
        return sum(result.status == "failed" for result in self.cells)

    @property
    def trains(self) -> bool:
        """Whether its error is that of a model; if not, of labels for the clients' points."""
        return all(result.cell.trains for result in self.cells)

    @property
    def best_rounds(self) -> list[int]:
        """Round of the saved model of each finished cell."""
        rounds = (result.figure("best_round") for result in self.finished)
        return [int(best) for best in rounds if best is not None]

    def mean(self, key: str) -> float | None:
        """Mean of a number of the summaries, such as ``seconds_total``."""
        values = [value for result in self.finished if (value := result.figure(key)) is not None]
        return sum(values) / len(values) if values else None


def make_rows(plan: Plan, results: Sequence[CellResult]) -> list[Row]:
    """Rows in the order of the runs; only finished cells with a known test error are compared."""
    of_run = {name: tuple(r for r in results if r.cell.run == name) for name in plan.runs}
    errors = {
        name: {
            result.cell.seed: error
            for result in found
            if (error := result.figure("test_error")) is not None
        }
        for name, found in of_run.items()
    }
    return [Row(name, standing, of_run[name]) for name, standing in rank(errors).items()]


def headings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Columns of a table of ``rows``: errors are not all test errors where some runs label."""
    error = "test error (%)" if all(row.trains for row in rows) else "error (%)"
    return tuple(error if name == "test error (%)" else name for name in HEADINGS)


def texts(row: Row) -> tuple[str, ...]:
    """A row in words, as headed by :data:`HEADINGS`."""
    up, down = (row.mean(key) for key in ("bytes_up", "bytes_down"))
    known = len(row.standing.seeds)
    return (
        row.run,
        _error(row),
        _interval(row.standing),
        _p_value(row.standing),
        ", ".join(map(str, row.best_rounds)) or "–",
        duration(row.mean("seconds_total")),
        duration(row.mean("seconds_per_round")),
        "–" if up is None else format_bytes(up),
        "–" if down is None else format_bytes(down),
        str(known) if known == len(row.cells) else f"{known} of {len(row.cells)}",
    )


def notes(plan: Plan, rows: Sequence[Row], mark: str) -> list[str]:
    """Sentences without which the table would be misread; ``mark`` is how it shows the best."""
    said = [*_errors(rows), *_intervals(rows), f"{mark}: {_meaning(rows)}"]
    local = [r.run for r in rows if any(c.cell.config.evaluate == "local" for c in r.cells)]
    if local:
        said.append(
            f"Of {'; '.join(local)} errors are means over the models of a round's clients, "
            "not of the combined one (evaluate = 'local')."
        )
    said += plan.split_warnings
    said += _pairs(rows)
    results = [result for row in rows for result in row.cells]
    said += [f"Failed: {r.cell.title}: {r.reason}" for r in results if r.status == "failed"]
    waiting = [r.cell.title for r in results if r.status in ("to do", "interrupted")]
    if waiting:
        said.append(f"Not finished: {'; '.join(waiting)}.")
    unknown = [r for r in results if r.status == "finished" and r.figure("test_error") is None]
    for trains, what in (
        (True, "No test error was measured in the best round of"),
        (False, "Nobody could score the labels of"),
    ):
        titles = [result.cell.title for result in unknown if result.cell.trains == trains]
        if titles:
            said.append(f"{what}: {'; '.join(titles)}.")
    return said


def markdown(plan: Plan, rows: Sequence[Row]) -> str:
    """The table, what has to be said about it, and the conditions, as Markdown."""
    lines = [markdown_line(headings(rows)), markdown_line(["---", *["---:"] * (len(HEADINGS) - 1)])]
    for row in rows:
        run, error, *rest = (markdown_text(text) for text in texts(row))
        lines.append(markdown_line([run, f"**{error}**" if row.standing.marked else error, *rest]))
    lines += [
        "",
        *(f"- {markdown_text(note)}" for note in notes(plan, rows, "Bold")),
        "",
        "## Conditions",
        "",
    ]
    lines += [
        f"- Clients: {plan.num_supernodes}",
        f"- Seeds: {', '.join(map(str, plan.seeds))}",
        f"- Settings of all runs: {_settings(plan.shared)}",
        *(f"- {markdown_text(name)}: {_settings(own)}" for name, own in plan.runs.items()),
        "- Time and traffic are means per training; all other settings have their defaults.",
    ]
    return "\n".join(["# Comparison", "", *lines, ""])


def runs_csv(rows: Sequence[Row]) -> str:
    """One line a run; numbers in full."""
    keys = ("seconds_per_round", "bytes_up", "bytes_down", *SHARES)
    return _csv(
        ("run", "mean", "std", "half_width", "p_value", "marked", "seconds", *keys, "n_seeds"),
        (
            (
                row.run,
                row.standing.mean,
                row.standing.std,
                row.standing.half_width,
                row.standing.p_value,
                str(row.standing.marked).lower(),
                *(row.mean(key) for key in ("seconds_total", *keys)),
                len(row.standing.seeds),
            )
            for row in rows
        ),
    )


def cells_csv(plan: Plan, results: Sequence[CellResult]) -> str:
    """One line a cell; its directory is relative to the comparison's."""
    keys = ("test_error", "best_round", "seconds_total", "bytes_up", "bytes_down", *SHARES)
    return _csv(
        ("run", "seed", "status", *keys, "directory"),
        (
            (
                result.cell.run,
                result.cell.seed,
                result.status,
                *((result.run.summary or {}).get(key) if result.run else None for key in keys),
                result.cell.directory.relative_to(plan.output).as_posix(),
            )
            for result in results
        ),
    )


def print_table(plan: Plan, rows: Sequence[Row]) -> None:
    """Print table and notes; a star marks what is bold in Markdown."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{plan.num_supernodes} clients", title_justify="left")
    for position, heading in enumerate(headings(rows)):
        table.add_column(heading, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        run, error, *rest = texts(row)
        marked = row.standing.marked
        shown = Text(f"{error} *" if marked else f"{error}  ", "bold" if marked else "")
        table.add_row(Text(run), shown, *rest)
    console = Console(soft_wrap=True, highlight=False)
    # Wider than the terminal rather than cut: lines that wrap can still be read.
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    console.print(table)
    for note in notes(plan, rows, "*"):
        console.print(note, markup=False)


def _errors(rows: Sequence[Row]) -> list[str]:
    """What the column of errors holds, and of which points."""
    form = "mean (sample standard deviation) over seeds."
    labeling = [row.run for row in rows if not row.trains]
    if not labeling:
        return [f"Test error in percent: {form}"]
    of_labels = (
        "the labels that clients gave their new points, or without any their unlabeled "
        "points, from labels across clients; a point without a label counts as wrong."
    )
    if len(labeling) == len(rows):
        return [f"Error in percent: {form}", f"It is that of {of_labels}"]
    return [
        f"Error in percent: {form}",
        f"Of {'; '.join(labeling)} it is that of {of_labels} Of the others it is the test error "
        "of the best round's model: other points, so compare with care.",
    ]


def _intervals(rows: Sequence[Row]) -> list[str]:
    if all(row.standing.half_width is None for row in rows):
        return []
    return ["95 %: half of the mean's confidence interval over seeds, by Student's t."]


def _error(row: Row) -> str:
    if row.standing.mean is None:
        return "failed" if row.failed else "–"
    std = "" if row.standing.std is None else f" ({row.standing.std:.2f})"
    return f"{row.standing.mean:.2f}{std}"


def _interval(standing: Standing) -> str:
    return "–" if standing.half_width is None else f"± {standing.half_width:.2f}"


def _p_value(standing: Standing) -> str:
    if standing.p_value is None:
        return "best" if standing.best else "–"
    return "< 0.001" if standing.p_value < 0.001 else f"{standing.p_value:.3f}"


def _meaning(rows: Sequence[Row]) -> str:
    if any(row.standing.p_value is not None for row in rows):
        return (
            "the lowest mean, and those that a two-sided paired t-test over seeds at "
            f"{LEVEL * 100:.0f} % does not tell apart from it (p is the test's). "
            "The fewer seeds, the less it tells apart."
        )
    return "the lowest mean. There was no test: it needs two runs with two seeds in common."


def _pairs(rows: Sequence[Row]) -> Iterable[str]:
    best = next((row for row in rows if row.standing.best), None)
    for row in rows:
        standing = row.standing
        if best is None or not standing.seeds or set(standing.seeds) == set(best.standing.seeds):
            continue
        if standing.p_value is None:
            yield f"{row.run} was not tested: it has fewer than two seeds in common with the best."
        else:
            seeds = ", ".join(map(str, standing.pairs))
            yield f"{row.run} was tested against {best.run} over the seeds that both have: {seeds}."


def _settings(values: Mapping[str, object]) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items()) or "none"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def markdown_text(text: str) -> str:
    """``text`` with what means something in Markdown escaped."""
    for sign in "\\|*_`<":
        text = text.replace(sign, f"\\{sign}")
    return text


def markdown_line(texts: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(texts)} |"


def _csv(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return out.getvalue()
