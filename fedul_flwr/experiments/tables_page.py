"""The page of all tables, ``docs/tables.md``, with a plot for some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from fedul_flwr.config.user_files import read_text
from fedul_flwr.data.run_files.store import DIRTY
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.paper_table import Kind, Line, lines, mean_curves
from fedul_flwr.experiments.runs_file import RunsFile, key_of, no_runs
from fedul_flwr.experiments.search_space import label
from fedul_flwr.experiments.statistics import (
    RIVAL_HEAD,
    paired_tests,
    rank_lines,
    rival_lines,
    rival_notes,
    row_errors,
)
from fedul_flwr.experiments.studies import (
    best_of,
    chosen_settings,
    read_studies,
    trial_counts,
    tuned_rows,
)
from fedul_flwr.experiments.table import SIZES, Table, read_table, table_names
from fedul_flwr.experiments.table_plan import Device, plan_column
from fedul_flwr.experiments.text_tables import markdown_table, markdown_text
from fedul_flwr.experiments.trial import Key

PAGE = Path("docs/tables.md")
"""The page, from the working directory."""
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
_CRITERIA = {"validation": "validation error (%)", "heldout": "held-out loss"}


def check_runs(table: Table, file: RunsFile, runs: pd.DataFrame) -> None:
    """Refuse runs of a file that the experiment as it is now would not make."""
    seeds: dict[str, dict[str, list[int]]] = {}
    for row, column, seed in map(key_of, runs.to_dict("records")):
        if column in table.names and row in table.column(column).rows:
            seeds.setdefault(column, {}).setdefault(row, []).append(seed)
    tuned = tuned_rows(table, file, seeds) if file.tuned else None
    now: dict[Key, Mapping[str, Any]] = {}
    for column, rows in seeds.items():
        used = sorted({seed for of_row in rows.values() for seed in of_row})
        chosen = None if tuned is None else tuned[column]
        plan = plan_column(table, column, file.size, used, Device(), chosen)
        now |= {trial.key: trial.settings for trial in plan.trials}
    for run in runs.to_dict("records"):
        file.check(run, now.get(key_of(run)))


@dataclass(frozen=True)
class TableRuns:
    """A table with its stored runs by kind; ``folder`` has the files."""

    table: Table
    folder: Path
    runs: Mapping[Kind, pd.DataFrame]

    @classmethod
    def read(cls, table: Table, folder: Path) -> TableRuns:
        """Read and check the runs of a table."""
        runs = {}
        for tuned, size in product((False, True), SIZES):
            file = RunsFile(folder, table.name, size, tuned)
            if len(of_kind := file.read()):
                check_runs(table, file, of_kind)
                runs[size, tuned] = of_kind
        return cls(table, folder, runs)

    def plotted(self) -> Kind | None:
        """The runs for the plot: tuned ones first, then full before quick; None without any."""
        for kind in sorted(self.runs, key=lambda kind: (not kind[1], SIZES.index(kind[0]))):
            column = self.table.picture
            if column and mean_curves(self.table, column, self.runs[kind]):
                return kind
        return None

    def plot_file(self) -> Path:
        """File of the plot, relative to the page."""
        return Path("pictures", f"{self.table.name.replace('/', '-')}.svg")

    def draw(self, folder: Path) -> None:
        """Write the plot, if there is one, below the folder of the page."""
        kind = self.plotted()
        if kind is None:
            return
        from fedul_flwr.experiments.trial_plots import column_figure
        from fedul_flwr.results.figure_style import draw_svg

        figure = column_figure(self.table, self.table.picture, kind, self.runs[kind])
        target = folder / self.plot_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, draw_svg(figure))

    def section(self) -> Iterator[str]:
        """The table as lines of the page."""
        table = self.table
        yield from [f"### {table.name}", "", f"{table.title}. {table.source}."]
        if table.note:
            yield table.note
        runs = pd.concat([*self.runs.values()]) if self.runs else no_runs()
        shown = list(lines(table, runs, table.rows, table.names))
        if not self.runs:
            if table.benchmark:
                yield f"A benchmark measures it: `{table.benchmark}`."
            else:
                command = RunsFile(self.folder, table.name, "full").command()
                yield f"Not run: `{command}`, or with `--quick`."
            yield from ["", *_paper_lines(table, shown)]
            return
        if self.plotted():
            yield from ["", f"![{table.title}]({self.plot_file()})"]
        yield ""
        yield from run_lines(table, shown, list(self.runs))
        yield from not_run_lines(table, shown)
        yield from ["", *(origin_line(self.runs[kind], kind) for kind in self.runs)]
        for kind, of_kind in self.runs.items():
            if kind[1]:
                yield from [
                    *self._ranks(of_kind),
                    *self._searches(RunsFile(self.folder, table.name, *kind)),
                ]
        yield ""

    def _ranks(self, runs: pd.DataFrame) -> Iterator[str]:
        """Mean ranks, in a table that says which rows have none, and tests of a named row."""
        of = self.table, runs, self.table.rows, self.table.names
        if self.table.unranked:
            ranks, notes = rank_lines(row_errors(*of))
            rows = [map(markdown_text, line) for line in ranks]
            yield from ["", *markdown_table(["row", "mean rank"], rows, 1), "", *notes]
        for named in self.table.named:
            if len(tests := paired_tests(self.table, named, *of[1:])):
                rows = [map(markdown_text, line) for line in rival_lines(tests)]
                head = [f"{named} against", *RIVAL_HEAD[1:]]
                yield from ["", *markdown_table(head, rows, 5)]
                yield from ["", *rival_notes(self.table, named, tests)]

    def _searches(self, file: RunsFile) -> Iterator[str]:
        """The settings that the searches of tuned runs chose."""
        yield ""
        yield (
            f"Tuned, {file.size}: settings that [one search for all rows](tune.md) chose without "
            f"the test set, on seeds that it never saw. `{file.searches.as_posix()}` has all "
            "trials."
        )
        yield ""
        texts = []
        tried: dict[str, list[str]] = {}
        for name, study in read_studies(file.searches).items():
            if not name.startswith(f"{file.size} / "):
                continue
            about = study.user_attrs
            column, row, definition = about["column"], about["row"], about["definition"]
            if row in self.table.chosen_with:  # of an earlier table
                continue
            tried.setdefault(_tried(definition["search"]), []).append(f"{column}, {row}")
            best, settings = best_of(study), chosen_settings(study) or {}
            value = "–" if best is None else f"{best.value:.4g}"
            chosen = ", ".join(f"{key} = {value}" for key, value in settings.items())
            measure = f"{_CRITERIA[definition['criterion']]}: {value}"
            texts.append([column, row, measure, trial_counts(study), chosen or "the row's own"])
        yield from markdown_table(
            ["column", "row", "chosen by", "trials", "chosen settings"],
            (map(markdown_text, line) for line in sorted(texts)),
        )
        yield ""
        for text, rows in tried.items():
            whose = f" for {'; '.join(rows)}" if len(tried) > 1 else ""
            yield f"Searched{whose}: {text}"


def _tried(search: Mapping[str, Any]) -> str:
    """The space of a search and its number of seeds, in one line."""
    dimensions = "; ".join(
        f"{name} {', '.join(f'`{label(option)}`' for option in options)}"
        for name, options in search["space"].items()
    )
    seeds = search["seeds"]
    return f"{dimensions}. {'One seed' if seeds == 1 else f'{seeds} seeds'} a trial."


def markdown(tables: Sequence[TableRuns]) -> str:
    """All tables as Markdown, tables with results first."""
    ordered = sorted(tables, key=lambda table: not table.runs)
    return "\n".join("\n".join(table.section()) for table in ordered)


def render(experiments: Path, folder: Path, page: Path = PAGE) -> None:
    """Write all tables between the markers of the page, and the plots; start a missing page."""
    text = read_text(page)
    if text is None:
        text = f"# Tables\n\n{BEGIN}\n{END}\n"
    before, has_begin, rest = text.partition(BEGIN)
    _, has_end, after = rest.partition(END)
    if not (has_begin and has_end):
        raise UserError(
            f"{page} needs the lines {BEGIN} and {END}; the tables go between them.",
            "result-file-wrong",
        )
    tables = [
        TableRuns.read(read_table(experiments, name), folder) for name in table_names(experiments)
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, f"{before}{BEGIN}\n\n{markdown(tables)}\n{END}{after}")
    for table in tables:
        table.draw(page.parent)


def run_lines(table: Table, shown: Sequence[Line], kinds: Sequence[Kind]) -> list[str]:
    """The lines that have a run, as a Markdown table."""
    several = len(table.measures) > 1
    of_size = [kind for kind in kinds if not kind[1]]
    tuned = [kind for kind in kinds if kind[1]]
    numbers = ["paper", *(text for size, _ in of_size for text in (size, "difference"))]
    numbers += [f"{size}, tuned" for size, _ in tuned]
    texts = []
    for line in shown:
        if line.ours:
            text = [line.column, line.row, *([line.heading] if several else []), line.text()]
            for kind in of_size:
                text += [line.text(kind, "not run"), line.difference(kind)]
            texts.append(map(markdown_text, [*text, *(line.text(kind) for kind in tuned)]))
    names = ["column", "row", *(["measure"] if several else [])]
    above = [] if several else [f"In {METRICS[table.measures[0]].heading}.", ""]
    return above + markdown_table([*names, *numbers], texts, numbers=len(numbers))


def not_run_lines(table: Table, shown: Sequence[Line]) -> list[str]:
    """A sentence that counts the rows and columns without a run."""
    cells = {(line.column, line.row) for line in shown}
    run = {(line.column, line.row) for line in shown if line.ours}
    if len(run) == len(cells):
        return []
    file = f"experiments/{table.name.replace('-', '_')}.py"
    paper = f"; the paper's figures of these are in `{file}`" if table.paper else ""
    return ["", f"Not run: {len(cells) - len(run)} of {len(cells)} cells{paper}."]


def origin_line(runs: pd.DataFrame, kind: Kind) -> str:
    """In which arithmetic and on how many processors columns were computed, and of what code."""
    size, tuned = kind
    used = runs.assign(
        arithmetic=[of["arithmetic"] or "unknown arithmetic" for of in runs["hardware"]],
        processor=[of["gpu"] or of["processor"] for of in runs["hardware"]],
    )
    columns: dict[str, list[str]] = {}
    for column, of_column in used.groupby("column"):
        text = " and ".join(sorted(of_column["arithmetic"].unique()))
        if (count := of_column["processor"].nunique()) > 1:
            text += f" on {count} processors"
        columns.setdefault(text, []).append(str(column))
    texts = [text if len(columns) == 1 else f"{text}: {', '.join(of)}"
             for text, of in sorted(columns.items())]  # fmt: skip
    changed = int(used["commit"].str.endswith(DIRTY, na=False).sum())
    code = f" {changed} of {len(used)} runs are of changed code." if changed else ""
    return f"Arithmetic, {size}{', tuned' if tuned else ''}: {'; '.join(texts)}.{code}"


def _paper_lines(table: Table, shown: Sequence[Line]) -> Iterator[str]:
    """The paper's figures alone: a line for each column, and a column for each row of the table."""
    for measure in table.measures:
        figures = {
            (line.column, line.row): line.text()
            for line in shown
            if line.measure == measure and line.paper.mean is not None
        }
        rows = list(dict.fromkeys(row for _, row in figures))
        if not rows:
            continue
        yield from markdown_table(
            [f"paper, {METRICS[measure].heading}", *map(markdown_text, rows)],
            (
                [markdown_text(column), *(figures.get((column, row), "–") for row in rows)]
                for column in dict.fromkeys(column for column, _ in figures)
            ),
            numbers=len(rows),
        )
        yield ""
