"""A comparison of runs: the means of their trials, and their table as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from fedul_flwr.config.base import AUTO, Scalar, nearest
from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.statistics import FEWEST_SEEDS, LEVEL, Estimate, Ranking, rank
from fedul_flwr.experiments.text_tables import print_table
from fedul_flwr.experiments.trial import TrialResult
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.results.facts import NONE, duration, format_bytes

MEASURES = {
    "balanced-accuracy": ("balanced (%)", "balanced_accuracy", 2),
    "auc": ("AUC", "auc", 3),
    "ece": ("ECE (%)", "ece", 2),
    "nll": ("NLL", "nll", 3),
    "brier": ("Brier", "brier", 3),
}
"""Heading, key in a summary and digits of the measures that a table can show, by their names."""
_FORM = "mean (sample standard deviation) over seeds."
_LABELS = (
    "It is the error of the labels that clients gave their new points, or their unlabeled points "
    "if they have no new ones. A point without a label counts as wrong."
)


@dataclass(frozen=True)
class Row:
    """One run of a comparison with the results of its trials."""

    name: str
    ranking: Ranking
    results: tuple[TrialResult, ...]

    @property
    def finished(self) -> tuple[TrialResult, ...]:
        """Its finished trials."""
        return tuple(result for result in self.results if result.status == "finished")

    @property
    def failed(self) -> int:
        """Number of its failed trials."""
        return sum(result.status == "failed" for result in self.results)

    @property
    def trains(self) -> bool:
        """Whether the errors are of models; if not, they are of labels for clients' points."""
        return all(result.trial.trains for result in self.results)

    def values(self, key: str) -> list[float]:
        """A number such as ``seconds_total`` of each finished trial that has it."""
        return [value for result in self.finished if (value := result.metric(key)) is not None]

    def mean(self, key: str) -> float | None:
        """Mean of :meth:`values`."""
        values = self.values(key)
        return sum(values) / len(values) if values else None


def make_rows(plan: Plan, results: Sequence[TrialResult]) -> list[Row]:
    """A row for each run, in their order; trials without a known test error are not ranked."""
    of_row = {name: tuple(r for r in results if r.trial.row == name) for name in plan.rows}
    ranked = rank(
        {
            name: {
                r.trial.seed: e for r in row_results if (e := r.metric("test_error")) is not None
            }
            for name, row_results in of_row.items()
        }
    )
    return [Row(name, ranked[name], row_results) for name, row_results in of_row.items()]


def parse_measures(text: str) -> tuple[str, ...]:
    """Read names of :data:`MEASURES` from a list such as ``balanced-accuracy,auc``."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in MEASURES or names.count(name) > 1:
            hint = nearest(name, MEASURES) if name not in MEASURES else ""
            raise UserError(
                f"--measures {text!r} must be some of {', '.join(MEASURES)}, separated by commas"
                f"{hint or '.'}",
                "unknown-name",
                option="--measures",
            )
    return tuple(names)


def cells(rows: Sequence[Row], measures: Sequence[str] = ()) -> pd.DataFrame:
    """The table as text, a line for each row; the first column is text, the others are numbers."""
    error = "test error (%)" if all(row.trains for row in rows) else "error (%)"
    lines = []
    for row in rows:
        half, seeds, count = row.ranking.error.half_width, len(row.ranking.seeds), len(row.results)
        up, down = (row.mean(key) for key in ("bytes_up", "bytes_down"))
        line = {
            "run": row.name,
            error: _error(row),
            "95 %": NONE if half is None else f"± {half:.2f}",
            "p": _p_value(row.ranking),
            **{
                heading: _spread(Estimate.of(row.values(key)), digits)
                for heading, key, digits in (MEASURES[name] for name in measures)
            },
            "best round": ", ".join(f"{best:.0f}" for best in row.values("best_round")) or NONE,
            "time": duration(row.mean("seconds_total")),
            "a round": duration(row.mean("seconds_per_round")),
            "up": NONE if up is None else format_bytes(up),
            "down": NONE if down is None else format_bytes(down),
            "seeds": str(seeds) if seeds == count else f"{seeds} of {count}",
        }
        lines.append(line)
    return pd.DataFrame(lines)


def notes(plan: Plan, rows: Sequence[Row], mark: str) -> list[str]:
    """Sentences that explain the table; ``mark`` says how it marks the best runs."""
    lines = [*_error_notes(rows)]
    if any(row.ranking.error.half_width is not None for row in rows):
        lines.append("95 %: half of the mean's confidence interval over seeds, by Student's t.")
    lines.append(f"{mark}: {_mark_note(rows)}")
    local = [r.name for r in rows if any(s.trial.config.evaluate == "local" for s in r.results)]
    if local:
        lines.append(
            f"The errors of {'; '.join(local)} are means over the models of a round's clients, not "
            "errors of the combined model (evaluate = 'local')."
        )
    if plan.measures:
        shown = ", ".join(MEASURES[name][0] for name in plan.measures)
        lines.append(f"{shown}: {_FORM}")
    lines += [*_label_notes(rows), *plan.notes, *_test_notes(rows)]
    results = [result for row in rows for result in row.results]
    lines += [f"Failed: {r.trial.title}: {r.reason}" for r in results if r.status == "failed"]
    lines += _run_warnings(results)
    waiting = [r.trial.title for r in results if r.status in ("to do", "interrupted")]
    if waiting:
        lines.append(f"Not finished: {'; '.join(waiting)}.")
    unknown = [r for r in results if r.status == "finished" and r.metric("test_error") is None]
    for trains, missing in (
        (True, "No test error was measured in the best round of"),
        (False, "There are no true labels to score the labels of"),
    ):
        titles = [result.trial.title for result in unknown if result.trial.trains == trains]
        if titles:
            lines.append(f"{missing}: {'; '.join(titles)}.")
    return lines


def _label_notes(rows: Sequence[Row]) -> Iterator[str]:
    """What each run learned from, and whether labels chose its round."""
    for row in rows:
        config, run = row.results[0].trial.config, next((r.run for r in row.finished), None)
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
            yield f"{row.name} learned from: {text}."


def automatic(row: Row) -> dict[str, list[Scalar]]:
    """Settings of a row that were ``auto``, with the values that its finished trials took."""
    taken: dict[str, list[Scalar]] = {}
    for result in row.finished:
        recorded = result.run.settings if result.run is not None else {}
        for key, value in result.trial.config.to_flat().items():
            used = recorded.get(key, AUTO)
            if value == AUTO != used and used not in taken.setdefault(key, []):
                taken[key].append(used)
    return {key: values for key, values in taken.items() if values}


def _run_warnings(results: Sequence[TrialResult]) -> Iterator[str]:
    """The warnings of finished trials, each once for a run, with its seeds."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for result in results:
        for text in result.run.outcome.warnings if result.run else ():
            seeds.setdefault((result.trial.row, str(text)), []).append(result.trial.seed)
    for (row, text), which in seeds.items():
        noun = "seed" if len(which) == 1 else "seeds"
        yield f"Warning: {row}, {noun} {', '.join(map(str, which))}: {text}"


def print_rows(plan: Plan, rows: Sequence[Row]) -> None:
    """Print the table and its notes; a star marks the best runs."""
    table = cells(rows, plan.measures)
    table.iloc[:, 1] += [" *" if row.ranking.marked else "  " for row in rows]
    lines, numbers = table.itertuples(index=False), len(table.columns) - 1
    title = f"{plan.num_clients} clients"
    print_table(title, [*table], lines, numbers, notes(plan, rows, "*"))


def _error_notes(rows: Sequence[Row]) -> Iterator[str]:
    labeling = [row.name for row in rows if not row.trains]
    if not labeling:
        yield f"Test error in percent: {_FORM}"
        return
    yield f"Error in percent: {_FORM}"
    if len(labeling) == len(rows):
        yield _LABELS
        return
    yield f"{'; '.join(labeling)}: {_LABELS}"
    yield (
        "The other runs: It is the test error of the model of the best round. It is measured on "
        "other points, so compare with care."
    )


def _error(row: Row) -> str:
    if row.ranking.error.mean is None and row.failed:
        return "failed"
    return _spread(row.ranking.error, 2)


def _spread(estimate: Estimate, digits: int) -> str:
    """``2.98 (1.72)``: mean and standard deviation."""
    if estimate.mean is None:
        return NONE
    return f"{estimate.mean:.{digits}f}" + (
        "" if estimate.std is None else f" ({estimate.std:.{digits}f})"
    )


def _p_value(ranking: Ranking) -> str:
    if ranking.p_value is None:
        return "best" if ranking.best else NONE
    return "< 0.001" if ranking.p_value < 0.001 else f"{ranking.p_value:.3f}"


def _mark_note(rows: Sequence[Row]) -> str:
    if any(row.ranking.marked for row in rows):
        return (
            "the lowest mean, and the means that a two-sided paired t-test over seeds does not "
            f"tell apart from it at the {LEVEL * 100:.0f} % level (p is its p-value). "
            "With fewer seeds the test tells fewer runs apart."
        )
    return f"no run. That needs two runs with {FEWEST_SEEDS} seeds in common."


def _test_notes(rows: Sequence[Row]) -> Iterator[str]:
    """The seeds of each test that is not over all seeds of the best run."""
    best = next((row for row in rows if row.ranking.best), None)
    for row in rows:
        ranking = row.ranking
        if best is None or not ranking.seeds or {*ranking.seeds} == {*best.ranking.seeds}:
            continue
        if ranking.p_value is None:
            yield f"{row.name} was not tested: it has fewer than two seeds in common with the best."
        else:
            seeds = ", ".join(map(str, ranking.pairs))
            yield (
                f"{row.name} was tested against {best.name} over the seeds that both have: {seeds}."
            )
