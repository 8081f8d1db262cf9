"""Print tables of ``results/`` as Markdown, with their searches.

``python -m docs.hooks.tables [NAME …]`` does it, in the folder of the repository: of the tables
that are named, such as ``fedul/table-1``, or of all.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedul_flwr.data.run_files.store import DIRTY
from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.paper_table import (
    KINDS,
    Kind,
    differences,
    figures,
    named,
    rank_rows,
    texts,
)
from fedul_flwr.experiments.reproduction import check_runs
from fedul_flwr.experiments.runs_file import RunsFile
from fedul_flwr.experiments.search_space import label
from fedul_flwr.experiments.studies import best_of, chosen_settings, read_studies, state_of
from fedul_flwr.experiments.table import Table, read_table, table_names
from fedul_flwr.experiments.text_tables import markdown_table, markdown_text

_CRITERIA = {"validation": "validation error (%)", "heldout": "held-out loss"}


def rendered(experiments: Path, folder: Path, names: Sequence[str] = ()) -> str:
    """The named tables with the runs of a folder, or all of them: those with runs first."""
    of_all = [read_table(experiments, one) for one in names or table_names(experiments)]
    tables = [Stored.read(table, folder) for table in of_all]
    tables.sort(key=lambda table: not table.kinds)
    return "\n".join("\n".join(table.section()) for table in tables)


@dataclass(frozen=True)
class Stored:
    """A table with its stored runs, and the kinds of these; ``folder`` has the files."""

    table: Table
    folder: Path
    runs: pd.DataFrame
    kinds: Sequence[Kind]

    @classmethod
    def read(cls, table: Table, folder: Path) -> "Stored":
        """Read and check the runs of a table."""
        runs = {}
        for kind in KINDS:
            file = RunsFile(folder, table.name, *kind)
            runs[kind] = file.read()
            check_runs(table, file, runs[kind])
        some = [of_kind for of_kind in runs.values() if len(of_kind)]
        every = pd.concat(some or [*runs.values()][:1])
        return cls(table, folder, every, [kind for kind in KINDS if len(runs[kind])])

    def of_kind(self, kind: Kind) -> pd.DataFrame:
        """Its runs of a kind."""
        return self.runs[(self.runs["size"] == kind[0]) & (self.runs["tuned"] == kind[1])]

    def section(self) -> Iterator[str]:
        """The table as lines of the page."""
        table = self.table
        yield from [f"### {table.name}", "", f"{table.title}. {table.source}."]
        if table.note:
            yield table.note
        shown = figures(table, self.runs, table.rows, table.names)
        if not self.kinds:
            if table.benchmark:
                yield f"A benchmark measures it: `{table.benchmark}`."
            else:
                command = RunsFile(self.folder, table.name, "full").command()
                yield f"Not run: `{command}`, or with `--quick`."
            yield from ["", *_paper_lines(table, shown)]
            return
        yield ""
        yield from run_lines(table, shown, self.kinds)
        yield from not_run_lines(table, shown)
        yield from ["", *(origin_line(self.of_kind(kind), kind) for kind in self.kinds)]
        for kind in self.kinds:
            if kind[1]:
                yield from self._ranks(self.of_kind(kind))
                yield from self._searches(RunsFile(self.folder, table.name, *kind))
        yield ""

    def _ranks(self, runs: pd.DataFrame) -> Iterator[str]:
        """Mean ranks, in a table that says which rows have none."""
        if self.table.unranked:
            ranks, notes = rank_rows(self.table, runs, self.table.rows, self.table.names)
            yield from ["", *markdown_table(ranks.map(markdown_text), 1), "", *notes]

    def _searches(self, file: RunsFile) -> Iterator[str]:
        """The settings that the searches of tuned runs chose."""
        yield ""
        yield (
            f"Tuned, {file.size}: settings that a search chose for each row without "
            f"the test set, on seeds that it never saw. `{file.searches.as_posix()}` has all "
            "trials."
        )
        yield ""
        lines = []
        tried: dict[str, list[str]] = {}
        for name, study in read_studies(file.searches).items():
            about = study.user_attrs
            # A row that trains as another one has the search of an earlier table.
            if not name.startswith(f"{file.size} / ") or about["row"] in self.table.chosen_with:
                continue
            column, row, definition = about["column"], about["row"], about["definition"]
            tried.setdefault(_tried(definition["search"]), []).append(f"{column}, {row}")
            best, settings = best_of(study), chosen_settings(study) or {}
            value = "–" if best is None else f"{best.value:.4g}"
            chosen = ", ".join(f"{key} = {value}" for key, value in settings.items())
            states = Counter(map(state_of, study.get_trials(deepcopy=False)))
            counts = ", ".join(f"{count} {state}" for state, count in states.items())
            lines.append(
                {
                    "column": column,
                    "row": row,
                    "chosen by": f"{_CRITERIA[definition['criterion']]}: {value}",
                    "trials": f"{states.total()}: {counts}",
                    "chosen settings": chosen or "the row's own",
                }
            )
        yield from markdown_table(
            pd.DataFrame(lines).map(markdown_text).sort_values(["column", "row"])
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


def run_lines(table: Table, shown: pd.DataFrame, kinds: Sequence[Kind]) -> list[str]:
    """The lines that have a run, as a Markdown table."""
    lines, names, tuned = named(table, shown), 3 - (len(table.measures) == 1), []
    for size, is_tuned in kinds:
        if is_tuned:
            tuned.append(pd.Series(texts(shown, (size, True), none="–"), name=f"{size}, tuned"))
        else:
            lines[size] = texts(shown, (size, False), none="not run")
            apart = pd.Series(differences(shown, (size, False)), name="difference")
            lines = pd.concat([lines, apart], axis="columns")
    lines = pd.concat([lines, *tuned], axis="columns")[has_run(shown).to_numpy()]
    above = [] if names == 3 else [f"In {METRICS[table.measures[0]].heading}.", ""]
    return above + markdown_table(lines.map(markdown_text), numbers=len(lines.columns) - names)


def has_run(shown: pd.DataFrame) -> pd.Series:
    """Whether a line has a figure of ours."""
    return shown[[*KINDS]].map(lambda figure: figure.seeds > 0).any(axis="columns")


def not_run_lines(table: Table, shown: pd.DataFrame) -> list[str]:
    """A sentence that counts the rows and columns without a run."""
    cells = has_run(shown).groupby(["column", "row"]).any()
    if cells.all():
        return []
    file = f"experiments/{table.name.replace('-', '_')}.py"
    paper = f"; the paper's figures of these are in `{file}`" if table.paper else ""
    return ["", f"Not run: {(~cells).sum()} of {len(cells)} cells{paper}."]


def origin_line(runs: pd.DataFrame, kind: Kind) -> str:
    """In which arithmetic and on how many processors columns were computed, and of what code."""
    size, tuned = kind
    used = runs.reset_index(drop=True).assign(
        arithmetic=[of["arithmetic"] or "unknown arithmetic" for of in runs["hardware"]],
        processor=[of["gpu"] or of["processor"] for of in runs["hardware"]],
    )
    columns: dict[str, list[str]] = {}
    for column, of_column in used.groupby("column"):
        text = " and ".join(sorted(of_column["arithmetic"].unique()))
        if (count := of_column["processor"].nunique()) > 1:
            text += f" on {count} processors"
        columns.setdefault(text, []).append(str(column))
    lines = [text if len(columns) == 1 else f"{text}: {', '.join(of)}"
             for text, of in sorted(columns.items())]  # fmt: skip
    changed = int(used["commit"].str.endswith(DIRTY, na=False).sum())
    code = f" {changed} of {len(used)} runs are of changed code." if changed else ""
    return f"Arithmetic, {size}{', tuned' if tuned else ''}: {'; '.join(lines)}.{code}"


def _paper_lines(table: Table, shown: pd.DataFrame) -> Iterator[str]:
    """The paper's figures alone: a line for each column, and a column for each row of the table."""
    cells = shown.assign(text=texts(shown, "paper", none="")).reset_index()
    for measure in table.measures:
        of_measure = cells[(cells["measure"] == measure) & (cells["text"] != "")]
        if of_measure.empty:
            continue
        wide = of_measure.pivot(index="column", columns="row", values="text").fillna("–")
        wide = wide.loc[of_measure["column"].unique(), of_measure["row"].unique()]
        wide.index = pd.Index(map(markdown_text, wide.index))
        wide.columns = pd.Index(map(markdown_text, wide.columns))
        heading = f"paper, {METRICS[measure].heading}"
        yield from markdown_table(wide.rename_axis(heading).reset_index(), wide.shape[1])
        yield ""


if __name__ == "__main__":
    print(rendered(Path("experiments"), Path("results"), sys.argv[1:]))
