"""Tables in words: in the terminal, and as Markdown in ``docs/tables.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.compare_table import markdown_line, markdown_text
from fedul_flwr.experiments.matrix import SIZES
from fedul_flwr.experiments.metrics import MEASURES
from fedul_flwr.experiments.paper_table import Line, curves, lines
from fedul_flwr.experiments.result_file import (
    Key,
    Result,
    check_result,
    command,
    read_results,
    results_file,
)
from fedul_flwr.experiments.table_file import Size, Table, read_table, table_names
from fedul_flwr.experiments.table_plan import Machine, plan_column
from fedul_flwr.experiments.trial_plan import Overrides
from fedul_flwr.results.records import write_atomically

CHOSEN_BY = {"validation": "validation error (%)", "heldout": "held-out loss"}
"""Criteria of a search in words."""

PAGE = Path("docs/tables.md")
"""Where tables are rendered to, from the working directory."""
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
_FORM = "mean ± half of its 95 % confidence interval (std over seeds)"


def check_results(
    experiments: Path,
    table: Table,
    size: Size,
    results: Mapping[Key, Result],
    searches: Path | None = None,
) -> None:
    """Refuse results of a table that are not of the experiment as it is.

    Parameters
    ----------
    searches : of results of tuned runs: folder of the searches that chose their settings.

    Raises
    ------
    UserError
        Naming the first, see :func:`~fedul_flwr.experiments.result_file.check_result` and, of tuned
        runs, :func:`~fedul_flwr.experiments.tuned_settings.tuned_rows`.
    """
    machine = Machine(experiments)
    now: dict[Key, Mapping[str, Any]] = {}
    for column in table.columns:
        if seeds := sorted({seed for _, name, seed in results if name == column}):
            chosen = None
            if searches is not None:
                chosen = _chosen(table, column, size, results, machine, searches)
            plan = plan_column(table, column, size, seeds, machine, chosen)
            now |= {(row, column, seed): flat for (row, seed), flat in plan.named.items()}
    for key, result in results.items():
        tuned = searches is not None
        check_result(table.name, size, key, result, now.get(key), tuned=tuned)


def _chosen(
    table: Table,
    column: str,
    size: Size,
    results: Mapping[Key, Result],
    machine: Machine,
    searches: Path,
) -> Mapping[str, Overrides]:
    """What searches chose for the rows of a column that have results, each on seeds it saw not."""
    from fedul_flwr.experiments.tuned_settings import tuned_rows

    found: dict[str, Overrides] = {}
    for row in dict.fromkeys(row for row, name, _ in results if name == column):
        seeds = [seed for own, name, seed in results if (own, name) == (row, column)]
        found |= tuned_rows(table, {column: [row]}, size, seeds, machine, searches)[column]
    return found


def markdown(experiments: Path, folder: Path) -> str:
    """All tables as Markdown, those with results first.

    Parameters
    ----------
    experiments, folder : of the experiments, and of the results.
    """
    ran: list[str] = []
    not_run: list[str] = []
    for name in table_names(experiments):
        table = read_table(experiments, name)
        results, tuned = _read(table, folder), _read(table, folder, tuned=True)
        for size in SIZES:
            check_results(experiments, table, size, results[size])
            check_results(experiments, table, size, tuned[size], folder)
        parts = ran if any([*results.values(), *tuned.values()]) else not_run
        parts.append(_section(table, results, tuned, folder))
    return "\n".join([*ran, *not_run])


def render(experiments: Path, folder: Path, page: Path = PAGE) -> None:
    """Replace what is between the markers of a page by all tables.

    Raises
    ------
    UserError
        If the page has no markers, or a result is refused.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{page} cannot be read: {error.strerror}.") from None
    before, found_begin, rest = text.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise UserError(f"{page} needs the lines {BEGIN} and {END} to hold the tables.")
    body = markdown(experiments, folder)
    write_atomically(page, f"{before}{BEGIN}\n\n{body}\n{END}{after}")
    for name in table_names(experiments):
        _draw(read_table(experiments, name), folder, page.parent)


def picture_of(table: Table) -> Path:
    """Where a table's picture is, from the page on."""
    return Path("pictures", f"{table.name.replace('/', '-')}.svg")


def _read(table: Table, folder: Path, *, tuned: bool = False) -> dict[Size, dict[Key, Result]]:
    return {
        size: read_results(results_file(folder, table.name, size, tuned=tuned)) for size in SIZES
    }


@dataclass(frozen=True)
class Drawn:
    """What a table's picture shows: results of a size, tuned or not."""

    size: Size
    tuned: bool
    results: Mapping[Key, Result]


def drawn(
    table: Table,
    results: Mapping[Size, Mapping[Key, Result]],
    tuned: Mapping[Size, Mapping[Key, Result]],
) -> Drawn | None:
    """What has errors over rounds for the picture: tuned before others, full before quick."""
    column = table.settings.picture
    for searched, found in ((True, tuned), (False, results)):
        for size in SIZES:
            if column and curves(table, column, found.get(size, {})):
                return Drawn(size, searched, found[size])
    return None


def _draw(table: Table, folder: Path, place: Path) -> None:
    shown = drawn(table, _read(table, folder), _read(table, folder, tuned=True))
    if shown is None:
        return
    from fedul_flwr.experiments.curve_plot import curves_figure
    from fedul_flwr.results.figure_style import draw_svg

    figure = curves_figure(
        table, table.settings.picture, shown.size, shown.results, tuned=shown.tuned
    )
    target = place / picture_of(table)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, draw_svg(figure))


def print_lines(
    table: Table, size: Size | None, shown: Sequence[Line], *, tuned: bool = False
) -> None:
    """Print a table: paper, ours of ``size`` and the difference; without a size the paper alone."""
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(title=f"{table.name}: {table.settings.title}", title_justify="left")
    measures = len(table.settings.measures) > 1
    grid.add_column("column", no_wrap=True)
    grid.add_column("row", no_wrap=True)
    ours = [f"{'tuned' if tuned else 'ours'}, {size}", "difference"] if size else []
    for heading in (*(["measure"] if measures else []), "paper", *ours):
        grid.add_column(heading, justify="right", no_wrap=True)
    for line in shown:
        measure = [MEASURES[line.measure].heading] if measures else []
        texts = line.texts(size) if size else ()
        grid.add_row(line.column, line.row, *measure, line.paper_text(), *texts)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(grid, options=unlimited).maximum)
    console.print(grid)
    if not measures:
        console.print(f"{MEASURES[table.settings.measures[0]].heading}, {_FORM}.")


def _section(
    table: Table,
    results: Mapping[Size, Mapping[Key, Result]],
    tuned: Mapping[Size, Mapping[Key, Result]],
    folder: Path,
) -> str:
    settings = table.settings
    head = [f"### {table.name}", "", f"{settings.title}. {settings.source}."]
    if settings.note:
        head.append(settings.note)
    known = {size: of for size, of in tuned.items() if of}
    shown = list(lines(table, results, table.rows(), list(table.columns), known))
    if any(results.values()) or known:
        if drawn(table, results, tuned):
            head += ["", f"![{settings.title}]({picture_of(table)})"]
        searched = [line for size in known for line in _searched(table, size, folder)]
        table_lines = _long(table, shown, list(known))
        return "\n".join([*head, "", *table_lines, *_not_run(table, shown), *searched, ""])
    if settings.benchmark:
        said = f"A benchmark measures it: `{settings.benchmark}`."
    else:
        said = f"Not run: `{command(table.name, 'full')}`, or with `--quick`."
    return "\n".join([*head, said, "", *_papers(table, shown)])


def _long(table: Table, shown: Sequence[Line], tuned: Sequence[Size]) -> list[str]:
    """A line for each row and column that has a run."""
    several = len(table.settings.measures) > 1
    names = ["column", "row", *(["measure"] if several else [])]
    sizes = [size for size in SIZES if any(line.ours.get(size) for line in shown)]
    numbers = ["paper", *(text for size in sizes for text in (size, "difference"))]
    numbers += [f"{size}, tuned" for size in tuned]
    out = [] if several else [f"In {MEASURES[table.settings.measures[0]].heading}.", ""]
    out += [
        markdown_line([*names, *numbers]),
        markdown_line(["---"] * len(names) + ["---:"] * len(numbers)),
    ]
    for line in shown:
        if not _has_run(line):
            continue
        said = [line.column, line.row, *([MEASURES[line.measure].heading] if several else [])]
        figures = [line.paper_text(), *(text for size in sizes for text in line.texts(size))]
        figures += [line.tuned_text(size) for size in tuned]
        out.append(markdown_line(markdown_text(text) for text in (*said, *figures)))
    return out


def _has_run(line: Line) -> bool:
    return any([*line.ours.values(), *line.tuned.values()])


def _not_run(table: Table, shown: Sequence[Line]) -> list[str]:
    """One sentence on the cells without a run."""
    cells = {(line.column, line.row) for line in shown}
    run = {(line.column, line.row) for line in shown if _has_run(line)}
    if len(run) == len(cells):
        return []
    return [
        "",
        f"Not run: {len(cells) - len(run)} of {len(cells)} cells; the paper's figures of these are "
        f"in `experiments/{table.name}.toml`.",
    ]


def _searched(table: Table, size: Size, folder: Path) -> Iterable[str]:
    """What the searches behind tuned figures chose, and where all that they tried is."""
    from fedul_flwr.experiments.search_file import read_searches, searches_file, trial_counts

    file = searches_file(folder, table.name, size)
    yield ""
    yield (
        f"Tuned, {size}: settings that [one search for all rows](tune.md) chose without the test "
        f"set, on seeds that it never saw. `{file.as_posix()}` has all trials."
    )
    yield ""
    yield markdown_line(["column", "row", "chosen by", "trials", "chosen settings"])
    yield markdown_line(["---"] * 5)
    for (row, column), found in read_searches(file).items():
        chosen = found["chosen"] or {"settings": {}, "value": None}
        value = "–" if chosen["value"] is None else f"{chosen['value']:.4g}"
        settings = ", ".join(f"{key} = {value}" for key, value in chosen["settings"].items())
        texts = [column, row, f"{CHOSEN_BY[found['criterion']]}: {value}", trial_counts(found)]
        yield markdown_line(markdown_text(text) for text in [*texts, settings or "the row's own"])


def _papers(table: Table, shown: Sequence[Line]) -> Iterable[str]:
    """The paper's figures alone: columns of the paper as lines, its rows as columns."""
    for measure in table.settings.measures:
        figures = {(li.column, li.row): li for li in shown if li.measure == measure and li.paper}
        rows = list(dict.fromkeys(row for _, row in figures))
        if not rows:
            continue
        yield markdown_line([f"paper, {MEASURES[measure].heading}", *map(markdown_text, rows)])
        yield markdown_line(["---", *["---:"] * len(rows)])
        for column in dict.fromkeys(column for column, _ in figures):
            found = [figures.get((column, row)) for row in rows]
            texts = [line.paper_text() if line else "–" for line in found]
            yield markdown_line([markdown_text(column), *texts])
        yield ""
