"""The table of a comparison: its runs ranked by the means of their trials, as text with notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.experiments.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    deviation,
    estimates,
    rank,
)
from fedul_flwr.experiments.text_tables import print_table
from fedul_flwr.experiments.trial import Trial
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.results.facts import NONE, duration, format_bytes
from fedul_flwr.run.summary import SHARES

MEASURES = {
    "known-error": ("known error (%)", "known_error", 2),
    "balanced-accuracy": ("balanced (%)", "balanced_accuracy", 2),
    "auc": ("AUC", "auc", 3),
    "ece": ("ECE (%)", "ece", 2),
    "nll": ("NLL", "nll", 3),
    "brier": ("Brier", "brier", 3),
}
"""Heading, key in a summary and digits of the measures that a table can show, by their names."""
COSTS = ("bytes_up", "bytes_down", *SHARES, *(key for _, key, _ in MEASURES.values()))
"""Numbers of a summary that the files have beside errors and times."""
_UNTESTED = "known_error"
_FORM = "mean (sample standard deviation) over seeds."
_WITHOUT_TESTS = (
    f"Known error in percent, of clients' points, without test points: {_FORM} How far it may be "
    "from the true one in each run is not in the intervals below."
)
_LABELS = (
    "It is the error of the labels that clients gave their new points, or their unlabeled points "
    "if they have no new ones. A point without a label counts as wrong."
)


@dataclass(frozen=True)
class Compared:
    """Runs of a plan with the table of their trials (:func:`run_trials`)."""

    plan: Plan
    trials: pd.DataFrame

    @property
    def rows(self) -> list[str]:
        """Names of the runs in their order."""
        return [*self.plan.rows]

    @property
    def error(self) -> str:
        """The number of a summary that ranks: the error of test points or, where no run has any,
        the one that is known without them."""
        has_tested = self.by_seed("test_error").notna().any(axis=None)
        is_known = self.by_seed(_UNTESTED).notna().any(axis=None)
        return _UNTESTED if is_known and not has_tested else "test_error"

    def by_seed(self, key: str) -> pd.DataFrame:
        """A number such as ``seconds_total`` by run and seed, NaN where no trial has it."""
        numbers = self.trials.reindex(columns=["row", "seed", key])
        table = numbers.pivot(index="row", columns="seed", values=key)
        return table.astype(float).reindex(self.rows)

    @cached_property
    def ranked(self) -> pd.DataFrame:
        """By run what :func:`~fedul_flwr.experiments.statistics.rank` says of the errors, means of
        ``seconds_total``, ``seconds_per_round`` and :data:`COSTS`, numbers of ``trials`` and of
        ``failed`` ones, and ``trains``: whether the errors are of models, or else of labels.
        """
        ranked, of_row = rank(self.by_seed(self.error)), self.trials.groupby("row")
        for key in ("seconds_total", "seconds_per_round", *COSTS):
            ranked[key] = self.by_seed(key).mean(axis="columns")
        ranked["trials"] = of_row.size()
        ranked["failed"] = of_row["status"].agg(lambda states: (states == "failed").sum())
        ranked["trains"] = of_row["trial"].agg(lambda of: all(trial.trains for trial in of))
        return ranked

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The table as text, a line for each run; the first column is text, others numbers."""
        ranked = self.ranked
        error = "test error (%)" if ranked["trains"].all() else "error (%)"
        error = MEASURES["known-error"][0] if self.error == _UNTESTED else error
        has_failed = (ranked["seeds"] == 0) & (ranked["failed"] > 0)
        cells = {
            error: _spread(ranked, 2).mask(has_failed, "failed"),
            "95 %": in_words(ranked["half_width"], "± {:.2f}".format),
            "p": in_words(
                ranked["p_value"], lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001"
            ).mask(ranked["best"], "best"),
        }
        for heading, key, digits in (MEASURES[name] for name in self.plan.measures):
            cells[heading] = _spread(estimates(self.by_seed(key)), digits)
        best = in_words(self.by_seed("best_round"), "{:.0f}".format)
        cells |= {
            "best round": [", ".join(of[of != NONE]) or NONE for _, of in best.iterrows()],
            "time": in_words(ranked["seconds_total"], duration),
            "a round": in_words(ranked["seconds_per_round"], duration),
            "up": in_words(ranked["bytes_up"], format_bytes),
            "down": in_words(ranked["bytes_down"], format_bytes),
            "seeds": [
                f"{count}" if count == of else f"{count} of {of}"
                for count, of in zip(ranked["seeds"], ranked["trials"], strict=True)
            ],
        }
        return pd.DataFrame(cells).rename_axis("run").reset_index()

    @cached_property
    def by_run(self) -> pd.DataFrame:
        """The trials of each run one after the other."""
        order = {row: position for position, row in enumerate(self.rows)}
        return self.trials.sort_values("row", key=lambda rows: rows.map(order), kind="stable")

    @property
    def finished(self) -> list[tuple[Trial, Run]]:
        """Finished trials and their runs."""
        done = self.by_run[self.by_run["run"].notna()]
        return [*zip(done["trial"], done["run"], strict=True)]

    def titles(self, which: pd.Series) -> list[str]:
        """Run and seed of chosen trials of :attr:`by_run`."""
        return [trial.title for trial in self.by_run.loc[which, "trial"]]


def in_words(values: Any, form: Callable[[float], str]) -> Any:
    """Numbers of a Series or a DataFrame as text."""
    return values.map(lambda value: NONE if pd.isna(value) else form(value)).astype(object)


def _spread(estimates: pd.DataFrame, digits: int) -> pd.Series:
    """``2.98 (1.72)``: means and standard deviations."""
    std = estimates["std"].map(lambda std: deviation(std, digits))
    means: pd.Series = in_words(estimates["mean"], f"{{:.{digits}f}}".format)
    return means + std


def print_runs(compared: Compared) -> None:
    """Print the table and its notes; a star marks the best runs."""
    table = compared.cells.copy()
    table.iloc[:, 1] += [" *" if marked else "  " for marked in compared.ranked["marked"]]
    title = f"{compared.plan.clients} clients"
    print_table(title, table, len(table.columns) - 1, notes(compared, "*"))


def notes(compared: Compared, mark: str) -> list[str]:
    """Sentences that explain the table; ``mark`` says how it marks the best runs."""
    plan, trials, ranked = compared.plan, compared.by_run, compared.ranked
    lines = [_WITHOUT_TESTS] if compared.error == _UNTESTED else [*_error_notes(ranked)]
    if ranked["half_width"].notna().any():
        lines.append("95 %: half of the mean's confidence interval over seeds, by Student's t.")
    lines.append(f"{mark}: {_mark_note(ranked)}")
    local = dict.fromkeys(t.row for t in trials["trial"] if t.config.evaluate == "local")
    if local:
        lines.append(
            f"The errors of {'; '.join(local)} are means over the models of a round's clients, not "
            "errors of the combined model (evaluate = 'local')."
        )
    if plan.measures:
        shown = ", ".join(MEASURES[name][0] for name in plan.measures)
        lines.append(f"{shown}: {_FORM}")
    lines += [*_label_notes(compared), *plan.notes, *_test_notes(compared)]
    failed, finished = (trials["status"] == state for state in ("failed", "finished"))
    reasons = zip(compared.titles(failed), trials.loc[failed, "reason"], strict=True)
    lines += [f"Failed: {title}: {reason}" for title, reason in reasons]
    lines += _run_warnings(compared)
    if waiting := compared.titles(~failed & ~finished):
        lines.append(f"Not finished: {'; '.join(waiting)}.")
    trains = pd.Series([trial.trains for trial in trials["trial"]], index=trials.index)
    unknown = finished & trials[compared.error].isna()
    for which, missing in (
        (trains, "No test error was measured in the best round of"),
        (~trains, "There are no true labels to score the labels of"),
    ):
        if titles := compared.titles(unknown & which):
            lines.append(f"{missing}: {'; '.join(titles)}.")
    return lines


def _error_notes(ranked: pd.DataFrame) -> Iterator[str]:
    labeling = [str(row) for row, trains in ranked["trains"].items() if not trains]
    if not labeling:
        yield f"Test error in percent: {_FORM}"
        return
    yield f"Error in percent: {_FORM}"
    if len(labeling) == len(ranked):
        yield _LABELS
        return
    yield f"{'; '.join(labeling)}: {_LABELS}"
    yield (
        "The other runs: It is the test error of the model of the best round. It is measured on "
        "other points, so compare with care."
    )


def _mark_note(ranked: pd.DataFrame) -> str:
    if ranked["marked"].any():
        return (
            "the lowest mean, and the means that a two-sided paired t-test over seeds does not "
            f"tell apart from it at the {LEVEL * 100:.0f} % level (p is its p-value). "
            "With fewer seeds the test tells fewer runs apart."
        )
    return f"no run. That needs two runs with {FEWEST_SEEDS} seeds in common."


def _label_notes(compared: Compared) -> Iterator[str]:
    """What each run learned from, and whether labels chose its round."""
    configs = {trial.row: trial.config for trial in reversed(compared.plan.trials)}
    runs = {trial.row: run for trial, run in reversed(compared.finished)}
    for row in filter(configs.get, compared.rows):
        config, run = configs[row], runs.get(row)
        parts = [find_method(config.method).needs]
        if (supervised := config.find(SupervisedSettings)) is not None:
            parts.append(f"here {100 * supervised.label_fraction:g} % of them")
        clients = run.clients if run is not None else ()
        if any(client.labeled_counts for client in clients):
            total = sum(sum(client.labeled_counts or ()) for client in clients)
            parts.append(f"here {total:,} labels at clients")
        if run is not None and run.settings.get("selection") in ("validation", "balanced"):
            parts.append("validation labels chose the round")
        if text := "; ".join(filter(None, parts)):
            yield f"{row} learned from: {text}."


def _test_notes(compared: Compared) -> Iterator[str]:
    """The seeds of each test that is not over all seeds of the best run."""
    measured, ranked = compared.by_seed(compared.error).notna(), compared.ranked
    for best in ranked.index[ranked["best"]]:
        for row in ranked.index[measured.any(axis="columns")]:
            if (measured.loc[row] == measured.loc[best]).all():
                continue
            if pd.isna(ranked.loc[row, "p_value"]):
                text = "was not tested: it has fewer than two seeds in common with the best"
            else:
                pairs = measured.columns[measured.loc[row] & measured.loc[best]]
                seeds = ", ".join(map(str, pairs))
                text = f"was tested against {best} over the seeds that both have: {seeds}"
            yield f"{row} {text}."


def _run_warnings(compared: Compared) -> Iterator[str]:
    """The warnings of finished trials, each once for a run, with its seeds."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for trial, run in compared.finished:
        for text in run.outcome.warnings:
            seeds.setdefault((trial.row, str(text)), []).append(trial.seed)
    for (row, text), which in seeds.items():
        noun = "seed" if len(which) == 1 else "seeds"
        yield f"Warning: {row}, {noun} {', '.join(map(str, which))}: {text}"


def automatic(compared: Compared, row: str) -> dict[str, list[Scalar]]:
    """Settings of a row that were ``auto``, with the values that its finished trials took."""
    taken: dict[str, list[Scalar]] = {}
    for trial, run in compared.finished:
        for key, value in trial.config.to_flat().items() if trial.row == row else ():
            used = run.settings.get(key, AUTO)
            if value == AUTO != used and used not in taken.setdefault(key, []):
                taken[key].append(used)
    return {key: values for key, values in taken.items() if values}
