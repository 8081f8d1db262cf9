"""The files of a comparison: the table as page, Markdown, CSV and LaTeX, the trials, the plot."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedul_flwr.data.safe_files import make_folder, write_atomically
from fedul_flwr.experiments.compare_table import (
    MEASURES,
    Row,
    automatic,
    cells,
    make_rows,
    notes,
)
from fedul_flwr.experiments.text_tables import csv_text, markdown_table, markdown_text
from fedul_flwr.experiments.trial import (
    Log,
    Simulate,
    TrialResult,
    check_unchanged,
    read_trial,
    run_trials,
)
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.experiments.trial_plots import compare_figure
from fedul_flwr.results.facts import NONE, percent
from fedul_flwr.results.figure_style import draw
from fedul_flwr.results.model_file import render
from fedul_flwr.results.report import PAGE, pictures
from fedul_flwr.run.server_data import open_server_data
from fedul_flwr.run.summary import SHARES

_TRAFFIC = ("bytes_up", "bytes_down", *SHARES)
_MEASURES = tuple(key for _, key, _ in MEASURES.values())


def compare(plan: Plan, simulate: Simulate, log: Log) -> list[Row]:
    """Run the trials that are not finished, and save the files of the comparison after each."""
    check_unchanged(plan.trials)
    for trial in plan.trials:  # a seed whose data cannot be split ends no other's run
        if read_trial(trial).status != "finished":
            open_server_data(trial.config).split_over(plan.num_clients, trial.config)
    results = run_trials(plan.trials, simulate, log, lambda done: _save(plan, done))
    return make_rows(plan, results)


def _save(plan: Plan, results: Sequence[TrialResult]) -> None:
    rows = make_rows(plan, results)
    make_folder(plan.output)
    figure = compare_figure(rows)
    files: dict[str, str | bytes] = {
        "comparison.md": markdown(plan, rows),
        "comparison.csv": _runs_csv(rows),
        "trials.csv": _trials_csv(plan, results),
        "comparison.tex": latex(plan, rows),
        PAGE: page(plan, rows, results, pictures({"comparison": figure})),
        "comparison.png": draw(figure, "png"),
    }
    for name, content in files.items():
        write_atomically(plan.output / name, content)


def markdown(plan: Plan, rows: Sequence[Row]) -> str:
    """The table with its notes, and the settings of the runs."""
    table = cells(rows, plan.measures).map(markdown_text)
    bold = ["**" if row.ranking.marked else "" for row in rows]
    table.iloc[:, 1] = bold + table.iloc[:, 1] + bold
    lines = table.itertuples(index=False)
    return "\n".join(
        [
            *("# Comparison", ""),
            *markdown_table([*table], lines, numbers=len(table.columns) - 1),
            "",
            *(f"- {markdown_text(note)}" for note in notes(plan, rows, "Bold")),
            *("", "## Conditions", ""),
            *(f"- {line}" for line in _conditions(plan, rows, markdown_text)),
            "",
        ]
    )


def _conditions(plan: Plan, rows: Sequence[Row], escaped: Callable[[str], str]) -> Iterator[str]:
    """Sentences on what the runs have in common and apart; settings are code of Markdown."""
    yield f"Clients: {plan.num_clients}"
    yield f"Seeds: {', '.join(map(str, plan.seeds))}"
    yield f"Settings of all runs: {_settings(plan.shared)}"
    for row in rows:
        yield f"{escaped(row.name)}: {_settings(plan.rows[row.name])}{_automatic(row)}"
    yield "All other settings have their defaults. Time and traffic are means over trials."


def page(
    plan: Plan, rows: Sequence[Row], results: Sequence[TrialResult], figures: Sequence[Any]
) -> str:
    """The table with its notes, figures, and all trials as one HTML page."""
    return render(
        "report_comparison.html.template.md",
        name=plan.output.resolve().name,
        rows=cells(rows, plan.measures).to_dict("records"),
        best=[at for at, row in enumerate(rows) if row.ranking.marked],
        notes=notes(plan, rows, "Bold"),
        conditions=[line.replace("`", "") for line in _conditions(plan, rows, str)],
        figures=figures,
        trials=[
            {
                "run": result.trial.row,
                "seed": str(result.trial.seed),
                "status": result.status,
                "error": percent(result.metric("test_error")),
                "best round": NONE if best is None else f"{best:.0f}",
                "directory": _directory(plan, result),
            }
            for result in results
            for best in [result.metric("best_round")]
        ],
    )


def latex(plan: Plan, rows: Sequence[Row]) -> str:
    """The table for LaTeX with package booktabs; the best runs are bold."""
    table = cells(rows, plan.measures)
    bold = ["textbf:--rwrap;" if row.ranking.marked else "" for row in rows]
    styled = table.style.hide(axis="index").apply(lambda _: bold, subset=[table.columns[1]])
    styled = styled.format(escape="latex").format_index(escape="latex", axis=1)
    form = "l" + "r" * (len(table.columns) - 1)
    text: str = styled.to_latex(hrules=True, column_format=form)
    # What pandas leaves and pdfLaTeX does not set, or sets as another sign.
    return "".join(_LATEX.get(sign, sign) for sign in text)


_LATEX = {
    **{"±": r"$\pm$", "–": "--", "−": "$-$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"},
    **{
        "²": "$^2$",
        "³": "$^3$",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "…": r"\dots{}",
        "≤": r"$\leq$",
    },
    **{
        chr(code): f"$\\{name.rpartition(' ')[2].lower()}$"
        for code in range(0x3B1, 0x3CA)
        if "FINAL" not in (name := unicodedata.name(chr(code))) and not name.endswith("OMICRON")
    },
}


def _runs_csv(rows: Sequence[Row]) -> str:
    """A line for each run, with numbers in full precision."""
    return csv_text(
        {
            "run": row.name,
            "mean": row.ranking.error.mean,
            "std": row.ranking.error.std,
            "half_width": row.ranking.error.half_width,
            "p_value": row.ranking.p_value,
            "marked": str(row.ranking.marked).lower(),
            "seconds": row.mean("seconds_total"),
            **{key: row.mean(key) for key in ("seconds_per_round", *_TRAFFIC, *_MEASURES)},
            "n_seeds": len(row.ranking.seeds),
        }
        for row in rows
    )


def _trials_csv(plan: Plan, results: Sequence[TrialResult]) -> str:
    """A line for each trial; its directory is relative to that of the comparison."""
    keys = ("test_error", "best_round", "seconds_total", *_TRAFFIC, *_MEASURES)
    return csv_text(
        {
            "run": result.trial.row,
            "seed": result.trial.seed,
            "status": result.status,
            **{key: getattr(result.run and result.run.summary, key, None) for key in keys},
            "directory": _directory(plan, result),
        }
        for result in results
    )


def _directory(plan: Plan, result: TrialResult) -> str:
    return result.trial.directory.relative_to(plan.output).as_posix()


def _automatic(row: Row) -> str:
    chosen = {key: " or ".join(map(_toml, values)) for key, values in automatic(row).items()}
    text = ", ".join(f"`{key} = {value}`" for key, value in chosen.items())
    return f"; automatic: {text}" if text else ""


def _settings(values: Mapping[str, object]) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items()) or "none"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
