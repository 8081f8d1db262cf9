"""The files of a comparison: the table as page, Markdown, CSV and LaTeX, the trials, the plot."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedul_flwr.data.csv_files import write_cell
from fedul_flwr.data.safe_files import make_folder, write_atomically
from fedul_flwr.experiments.compare_plot import compare_figure
from fedul_flwr.experiments.compare_table import COSTS, Compared, automatic, in_words, notes
from fedul_flwr.experiments.text_tables import markdown_table, markdown_text
from fedul_flwr.experiments.trial import Log, Simulate, check_unchanged, read_trial, run_trials
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.results.facts import percent
from fedul_flwr.results.figure_style import draw
from fedul_flwr.results.model_file import render
from fedul_flwr.results.report import PAGE, pictures
from fedul_flwr.run.server_data import open_server_data


def compare(plan: Plan, simulate: Simulate, log: Log) -> Compared:
    """Run the trials that are not finished, and save the files of the comparison after each."""
    check_unchanged(plan.trials)
    for trial in plan.trials:  # a seed whose data cannot be split ends no other's run
        if read_trial(trial)["status"] != "finished":
            open_server_data(trial.config).split_over(plan.clients, trial.config)
    return Compared(
        plan, run_trials(plan.trials, simulate, log, lambda done: _save(Compared(plan, done)))
    )


def _save(compared: Compared) -> None:
    output = compared.plan.output
    make_folder(output)
    figure = compare_figure(compared)
    files: dict[str, str | bytes] = {
        "comparison.md": markdown(compared),
        "comparison.csv": _csv(_ranking(compared)),
        "trials.csv": _csv(_trials(compared, "test_error", "best_round", "seconds_total", *COSTS)),
        "comparison.tex": latex(compared),
        PAGE: page(compared, pictures({"comparison": figure})),
        "comparison.png": draw(figure, "png"),
    }
    for name, content in files.items():
        write_atomically(output / name, content)


def _ranking(compared: Compared) -> pd.DataFrame:
    """A line for each run, with numbers in full precision."""
    ranked = compared.ranked.rename(columns={"seconds_total": "seconds", "seeds": "n_seeds"})
    ranked["marked"] = ranked["marked"].map({True: "true", False: "false"})
    shown = ["mean", "std", "half_width", "p_value", "marked", "seconds", "seconds_per_round"]
    return ranked[[*shown, *COSTS, "n_seeds"]].rename_axis("run").reset_index()


def _trials(compared: Compared, *keys: str) -> pd.DataFrame:
    """A line for each trial; its directory is relative to that of the comparison."""
    trials = compared.trials.rename(columns={"row": "run", "run": "record"})
    shown = trials.reindex(columns=["run", "seed", "status", *keys])
    shown["directory"] = [
        trial.directory.relative_to(compared.plan.output).as_posix() for trial in trials["trial"]
    ]
    return shown


def _csv(table: pd.DataFrame) -> str:
    safe = table.assign(run=[write_cell(run) for run in table["run"]])
    return str(safe.to_csv(index=False, lineterminator="\n"))


def markdown(compared: Compared) -> str:
    """The table with its notes, and the settings of the runs."""
    table = compared.cells.map(markdown_text)
    bold = ["**" if marked else "" for marked in compared.ranked["marked"]]
    table.iloc[:, 1] = bold + table.iloc[:, 1] + bold
    return "\n".join(
        [
            *("# Comparison", ""),
            *markdown_table(table, numbers=len(table.columns) - 1),
            "",
            *(f"- {markdown_text(note)}" for note in notes(compared, "Bold")),
            *("", "## Conditions", ""),
            *(f"- {line}" for line in _conditions(compared, markdown_text)),
            "",
        ]
    )


def _conditions(compared: Compared, escaped: Callable[[str], str]) -> Iterator[str]:
    """Sentences on what the runs have in common and apart; settings are code of Markdown."""
    plan = compared.plan
    yield f"Clients: {plan.clients}"
    yield f"Seeds: {', '.join(map(str, plan.seeds))}"
    yield f"Settings of all runs: {_settings(plan.shared) or 'none'}"
    for row, settings in plan.rows.items():
        taken = automatic(compared, row)
        chosen = f"; automatic: {_settings(taken)}" if taken else ""
        yield f"{escaped(row)}: {_settings(settings) or 'none'}{chosen}"
    yield "All other settings have their defaults. Time and traffic are means over trials."


def _settings(values: Mapping[str, object]) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items())


def _toml(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(_toml, value))
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def page(compared: Compared, figures: Sequence[Any]) -> str:
    """The table with its notes, figures, and all trials as one HTML page."""
    trials = _trials(compared, compared.error, "best_round")
    trials["error"] = in_words(trials[compared.error], percent)
    trials["best round"] = in_words(trials["best_round"], "{:.0f}".format)
    trials["seed"] = trials["seed"].astype(str)
    return render(
        "report_comparison.html.template.md",
        name=compared.plan.output.resolve().name,
        rows=compared.cells.to_dict("records"),
        best=np.flatnonzero(compared.ranked["marked"]),
        notes=notes(compared, "Bold"),
        conditions=[line.replace("`", "") for line in _conditions(compared, str)],
        figures=figures,
        trials=trials[["run", "seed", "status", "error", "best round", "directory"]].to_dict(
            "records"
        ),
    )


def latex(compared: Compared) -> str:
    """The table for LaTeX with package booktabs; the best runs are bold."""
    table = compared.cells
    bold = ["textbf:--rwrap;" if marked else "" for marked in compared.ranked["marked"]]
    styled = table.style.hide(axis="index").apply(lambda _: bold, subset=[table.columns[1]])
    styled = styled.format(escape="latex").format_index(escape="latex", axis=1)
    form = "l" + "r" * (len(table.columns) - 1)
    text: str = styled.to_latex(hrules=True, column_format=form)
    # What pandas leaves and pdfLaTeX does not set, or sets as another sign.
    return "".join(_LATEX.get(sign, sign) for sign in text)


_LATEX = {
    **{"±": r"$\pm$", "–": "--", "−": "$-$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"},
    **{"²": "$^2$", "³": "$^3$", "·": r"$\cdot$", "×": r"$\times$", "…": r"\dots{}"},
    **{"≤": r"$\leq$"},
    **{
        chr(code): f"$\\{name.rpartition(' ')[2].lower()}$"
        for code in range(0x3B1, 0x3CA)
        if "FINAL" not in (name := unicodedata.name(chr(code))) and not name.endswith("OMICRON")
    },
}
