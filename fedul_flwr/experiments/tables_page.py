"""The page of all tables, ``docs/tables.md``, with a plot for some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

from fedul_flwr.config.user_files import read_text
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.compare_table import markdown_table, markdown_text
from fedul_flwr.experiments.mean_ranks import rank_lines, row_errors
from fedul_flwr.experiments.paper_table import Line, Results, lines, mean_curves
from fedul_flwr.experiments.result_file import ResultFile
from fedul_flwr.experiments.search_file import (
    read_searches,
    trial_counts,
    tuned_rows,
)
from fedul_flwr.experiments.search_space import label
from fedul_flwr.experiments.table_file import SIZES, Size, Table, read_table, table_names
from fedul_flwr.experiments.table_plan import Device, plan_column
from fedul_flwr.experiments.trial import METRICS, Key

PAGE = Path("docs/tables.md")
"""The page, from the working directory."""
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
_CRITERIA = {"validation": "validation error (%)", "heldout": "held-out loss"}
_Plotted = tuple[Size, bool, Results]
"""Size of the runs in a plot, whether they are tuned, and their results."""


def check_results(table: Table, file: ResultFile, results: Results) -> None:
    """Refuse results of a file that the experiment as it is now would not make."""
    now: dict[Key, Mapping[str, Any]] = {}
    for column in table.columns:
        seeds: dict[str, list[int]] = {}
        for row, name, seed in results:
            if name == column:
                seeds.setdefault(row, []).append(seed)
        if not seeds:
            continue
        tuned = tuned_rows(table, column, file, seeds) if file.tuned else None
        used = sorted({seed for of_row in seeds.values() for seed in of_row})
        plan = plan_column(table, column, file.size, used, Device(), tuned)
        now |= {trial.key: trial.settings for trial in plan.trials}
    for key, result in results.items():
        file.check(key, result, now.get(key))


@dataclass(frozen=True)
class TableResults:
    """A table with its stored results by size; ``folder`` has the files."""

    table: Table
    folder: Path
    results: Mapping[Size, Results]
    tuned: Mapping[Size, Results]

    @classmethod
    def read(cls, table: Table, folder: Path) -> TableResults:
        """Read and check the results of a table."""
        by_choice: dict[bool, dict[Size, Results]] = {False: {}, True: {}}
        for tuned, size in product(by_choice, SIZES):
            file = ResultFile(folder, table.name, size, tuned)
            results = by_choice[tuned][size] = file.read()
            check_results(table, file, results)
        return cls(
            table, folder, by_choice[False], {s: of for s, of in by_choice[True].items() if of}
        )

    def has_run(self) -> bool:
        """Whether there is any result."""
        return any(self.results.values()) or bool(self.tuned)

    def plotted(self) -> _Plotted | None:
        """The runs for the plot: tuned ones first, then full before quick; None without any."""
        column = self.table.settings.picture
        for searched, results in ((True, self.tuned), (False, self.results)):
            for size in SIZES:
                if column and mean_curves(self.table, column, results.get(size, {})):
                    return size, searched, results[size]
        return None

    def plot_file(self) -> Path:
        """File of the plot, relative to the page."""
        return Path("pictures", f"{self.table.name.replace('/', '-')}.svg")

    def draw(self, folder: Path) -> None:
        """Write the plot, if there is one, below the folder of the page."""
        plotted = self.plotted()
        if plotted is None:
            return
        from fedul_flwr.experiments.trial_plots import column_figure
        from fedul_flwr.results.figure_style import draw_svg

        size, tuned, results = plotted
        column = self.table.settings.picture
        figure = column_figure(self.table, column, size, results, tuned=tuned)
        target = folder / self.plot_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, draw_svg(figure))

    def section(self) -> str:
        """The table as a section of the page."""
        table, settings = self.table, self.table.settings
        head = [f"### {table.name}", "", f"{settings.title}. {settings.source}."]
        if settings.note:
            head.append(settings.note)
        shown = list(lines(table, self.results, table.rows(), list(table.columns), self.tuned))
        if self.has_run():
            if self.plotted():
                head += ["", f"![{settings.title}]({self.plot_file()})"]
            parts: list[Iterable[str]] = [
                result_lines(table, shown, list(self.tuned)),
                not_run_lines(table, shown),
            ]
            for size, results in self.tuned.items():
                parts += [self._ranks(results), self._searches(size)]
            return "\n".join([*head, "", *chain.from_iterable(parts), ""])
        if settings.benchmark:
            head.append(f"A benchmark measures it: `{settings.benchmark}`.")
        else:
            command = ResultFile(self.folder, table.name, "full").command()
            head.append(f"Not run: `{command}`, or with `--quick`.")
        return "\n".join([*head, "", *_paper_lines(table, shown)])

    def _ranks(self, results: Results) -> Iterator[str]:
        """Mean ranks, in a table that says which rows have none."""
        if self.table.settings.unranked:
            errors = row_errors(self.table, self.table.rows(), list(self.table.columns), results)
            ranks, notes = rank_lines(errors)
            rows = [map(markdown_text, line) for line in ranks]
            yield from ["", *markdown_table(["row", "mean rank"], rows, 1), "", *notes]

    def _searches(self, size: Size) -> Iterator[str]:
        """The settings that the searches of tuned runs chose."""
        file = ResultFile(self.folder, self.table.name, size).searches
        yield ""
        yield (
            f"Tuned, {size}: settings that [one search for all rows](tune.md) chose without the "
            f"test set, on seeds that it never saw. `{file.as_posix()}` has all trials."
        )
        yield ""
        lines = []
        tried: dict[str, list[str]] = {}
        for (row, column), search in read_searches(file).items():
            tried.setdefault(_tried(search), []).append(f"{column}, {row}")
            chosen = search["chosen"] or {"settings": {}, "value": None}
            value = "–" if chosen["value"] is None else f"{chosen['value']:.4g}"
            settings = ", ".join(f"{key} = {value}" for key, value in chosen["settings"].items())
            texts = [column, row, f"{_CRITERIA[search['criterion']]}: {value}"]
            texts += [trial_counts(search), settings or "the row's own"]
            lines.append(map(markdown_text, texts))
        yield from markdown_table(
            ["column", "row", "chosen by", "trials", "chosen settings"], lines
        )
        yield ""
        for text, rows in tried.items():
            whose = f" for {'; '.join(rows)}" if len(tried) > 1 else ""
            yield f"Searched{whose}: {text}"


def _tried(search: Mapping[str, Any]) -> str:
    """The space of a search and its number of seeds, in one line."""
    space = search["search"]["space"]
    dimensions = "; ".join(
        f"{name} {', '.join(f'`{label(option)}`' for option in options)}"
        for name, options in space.items()
    )
    seeds = search["search"].get("seeds", 1)
    return f"{dimensions}. {'One seed' if seeds == 1 else f'{seeds} seeds'} a trial."


def markdown(tables: Sequence[TableResults]) -> str:
    """All tables as Markdown, tables with results first."""
    return "\n".join(
        table.section() for table in sorted(tables, key=lambda table: not table.has_run())
    )


def render(experiments: Path, folder: Path, page: Path = PAGE) -> None:
    """Write all tables between the markers of the page, and the plots; start a missing page."""
    text = read_text(page)
    if text is None:
        text = f"# Tables\n\n{BEGIN}\n{END}\n"
    before, found_begin, rest = text.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise UserError(
            f"{page} needs the lines {BEGIN} and {END}; the tables go between them.",
            "result-file-wrong",
        )
    tables = [
        TableResults.read(read_table(experiments, name), folder)
        for name in table_names(experiments)
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, f"{before}{BEGIN}\n\n{markdown(tables)}\n{END}{after}")
    for table in tables:
        table.draw(page.parent)


def result_lines(table: Table, shown: Sequence[Line], tuned: Sequence[Size]) -> list[str]:
    """The lines that have a run, as a Markdown table."""
    several = len(table.settings.measures) > 1
    sizes = [size for size in SIZES if any(line.ours[size].count for line in shown)]
    numbers = ["paper", *(text for size in sizes for text in (size, "difference"))]
    numbers += [f"{size}, tuned" for size in tuned]
    lines = []
    for line in shown:
        if line.has_run:
            texts = [line.column, line.row, *([line.heading] if several else [])]
            texts += [line.text(line.paper), *(text for size in sizes for text in line.texts(size))]
            texts += [line.text(line.tuned.get(size)) for size in tuned]
            lines.append(map(markdown_text, texts))
    names = ["column", "row", *(["measure"] if several else [])]
    above = [] if several else [f"In {METRICS[table.settings.measures[0]].heading}.", ""]
    return above + markdown_table([*names, *numbers], lines, numbers=len(numbers))


def not_run_lines(table: Table, shown: Sequence[Line]) -> list[str]:
    """A sentence that counts the rows and columns without a run."""
    cells = {(line.column, line.row) for line in shown}
    run = {(line.column, line.row) for line in shown if line.has_run}
    if len(run) == len(cells):
        return []
    paper = f"; the paper's figures of these are in `experiments/{table.name}.toml`"
    text = f"Not run: {len(cells) - len(run)} of {len(cells)} cells"
    return ["", f"{text}{paper if table.settings.paper else ''}."]


def _paper_lines(table: Table, shown: Sequence[Line]) -> Iterator[str]:
    """The paper's figures alone: a line for each column, and a column for each row of the table."""
    for metric in table.settings.measures:
        figures = {
            (line.column, line.row): line.text(line.paper)
            for line in shown
            if line.metric == metric and line.paper.mean is not None
        }
        rows = list(dict.fromkeys(row for _, row in figures))
        if not rows:
            continue
        yield from markdown_table(
            [f"paper, {METRICS[metric].heading}", *map(markdown_text, rows)],
            (
                [markdown_text(column), *(figures.get((column, row), "–") for row in rows)]
                for column in dict.fromkeys(column for column, _ in figures)
            ),
            numbers=len(rows),
        )
        yield ""
