"""A comparison of runs: means over seeds, intervals, paired tests, and their table as text.

The paired t-test is the one that the FedUL paper uses.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t
from scipy.stats import ttest_rel

from fedul_flwr.config.base import AUTO, Scalar, nearest
from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.data.csv_files import write_cell
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial import TrialResult
from fedul_flwr.experiments.trial_plan import Plan
from fedul_flwr.results.printed_summary import duration, format_bytes, print_wide

LEVEL = 0.05
"""Significance level of the test; confidence intervals have the level one minus it."""
FEWEST_SEEDS = 3
"""Seeds that two runs need in common before any is marked as best."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a metric over runs.

    Attributes
    ----------
    mean : None without any run.
    std : sample standard deviation (n - 1); None if it is not known.
    count : number of runs; 0 if it is not known, as for figures of a paper.
    half_width : half of the 95 % confidence interval of the mean; None with fewer than two runs.
    """

    mean: float | None = None
    std: float | None = None
    count: int = 0
    half_width: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate from the values of single runs.

        The interval is that of Student's t: its half is t·s/√n with the 0.975 quantile t of n − 1
        degrees of freedom and the sample standard deviation s of the n values.
        """
        count = len(values)
        if count < 2:
            return cls(values[0], count=1) if values else cls()
        std = stdev(values)
        half = float(student_t.ppf(1 - LEVEL / 2, count - 1)) * std / math.sqrt(count)
        return cls(fmean(values), std, count, half)

    def text(self, digits: int) -> str:
        """``2.98 ± 2.14 (1.72), 5 seeds``, without the parts that are not known."""
        if self.mean is None:
            return "–"
        half = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        std = "" if self.std is None else f" ({self.std:.{digits}f})"
        count = f", {self.count} seed{'s' if self.count > 1 else ''}" if self.count else ""
        return f"{self.mean:.{digits}f}{half}{std}{count}"


@dataclass(frozen=True)
class Ranking:
    """The errors of one run, compared with the run of the lowest mean.

    Attributes
    ----------
    error : mean test error in percent over ``seeds``.
    seeds : seeds with a known test error, in the order given.
    best : whether the mean is the lowest; of equal means the first is the best.
    pairs : the seeds that the best run has, too.
    p_value : p-value of the test against the best over ``pairs``; None for the best itself and
        with fewer than two pairs.
    marked : whether the run is the best, or the test does not tell it apart from the best; never
        with fewer than :data:`FEWEST_SEEDS` pairs.
    """

    error: Estimate
    seeds: tuple[int, ...]
    best: bool
    pairs: tuple[int, ...]
    p_value: float | None
    marked: bool


def rank(errors: Mapping[str, Mapping[int, float]]) -> dict[str, Ranking]:
    """Compare runs by their test errors.

    Parameters
    ----------
    errors : the known test errors (percent) of every run by seed. Runs need not have the same
        seeds; each is tested over the seeds that it shares with the best.
    """
    estimates = {name: Estimate.of(list(by_seed.values())) for name, by_seed in errors.items()}
    means = {name: error.mean for name, error in estimates.items() if error.mean is not None}
    best = min(means, key=means.__getitem__, default=None)
    ranked: dict[str, Ranking] = {}
    for name, by_seed in errors.items():
        pairs = tuple(seed for seed in by_seed if best is not None and seed in errors[best])
        p_value = None
        if best is not None and name != best and len(pairs) > 1:
            p_value = paired_p_value(
                [by_seed[seed] for seed in pairs], [errors[best][seed] for seed in pairs]
            )
        marked = p_value is not None and len(pairs) >= FEWEST_SEEDS and p_value >= LEVEL
        ranked[name] = Ranking(
            estimates[name], tuple(by_seed), name == best, pairs, p_value, marked
        )
    rivals = (ranking for ranking in ranked.values() if not ranking.best)
    if best is not None and any(len(rival.pairs) >= FEWEST_SEEDS for rival in rivals):
        ranked[best] = replace(ranked[best], marked=True)
    return ranked


def stack_curves(
    series: Iterable[Mapping[int, float]],
) -> tuple[list[int], NDArray[np.float64]]:
    """Errors over rounds of several runs.

    Parameters
    ----------
    series : error by round of each run; runs without any error are left out.

    Returns
    -------
    The rounds that all runs measured, and the errors (runs x rounds).

    Examples
    --------
    >>> rounds, errors = stack_curves([{1: 50.0, 2: 40.0}, {1: 30.0, 2: 20.0, 3: 10.0}])
    >>> rounds, errors.tolist()
    ([1, 2], [[50.0, 40.0], [30.0, 20.0]])
    """
    measured = [curve for curve in series if curve]
    rounds = sorted(set.intersection(*map(set, measured))) if measured else []
    return rounds, np.array([[curve[step] for step in rounds] for curve in measured])


def paired_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test on at least two pairs (``scipy.stats.ttest_rel``).

    If all differences are equal, the statistic is 0/0 or infinite. The p-value is then its limit:
    1 if the differences are 0, and 0 otherwise.
    """
    differences = np.subtract(first, second)
    if np.ptp(differences) == 0:
        return 1.0 if differences[0] == 0 else 0.0
    with warnings.catch_warnings():
        # If differences are equal up to rounding, SciPy warns; its tiny value is right.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_rel(first, second).pvalue)


Lines = Iterable[Iterable[str]]


def print_table(
    title: str, head: Sequence[str], lines: Lines, numbers: int, notes: Iterable[str] = ()
) -> None:
    """Print a table and notes below it; the last ``numbers`` columns are aligned to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for position, heading in enumerate(head):
        right = position >= len(head) - numbers
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    print_wide(table, *notes)


def markdown_table(head: Sequence[str], lines: Lines, numbers: int = 0) -> list[str]:
    """Lines of a Markdown table; the last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return [f"| {' | '.join(line)} |" for line in (head, rule, *lines)]


def markdown_text(text: str) -> str:
    """``text`` with the special characters of Markdown escaped.

    Examples
    --------
    >>> print(markdown_text("num_sets"))
    num\\_sets
    """
    for sign in "\\|*_`<":
        text = text.replace(sign, f"\\{sign}")
    return text


def csv_text(lines: Iterable[Mapping[str, object]]) -> str:
    """One or more lines by column as CSV; None is an empty field."""
    import pandas as pd

    rows = [{k: write_cell(v) if isinstance(v, str) else v for k, v in x.items()} for x in lines]
    return pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n")


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


def headings(rows: Sequence[Row], measures: Sequence[str] = ()) -> tuple[str, ...]:
    """Headings of :func:`texts`; the first column is text, the others are numbers."""
    error = "test error (%)" if all(row.trains for row in rows) else "error (%)"
    shown = (MEASURES[name][0] for name in measures)
    time = ("best round", "time", "a round", "up", "down", "seeds")
    return ("run", error, "95 %", "p", *shown, *time)


def texts(row: Row, measures: Sequence[str] = ()) -> tuple[str, ...]:
    """A row of the table, with ``measures`` named in :data:`MEASURES`."""
    up, down = (row.mean(key) for key in ("bytes_up", "bytes_down"))
    seeds, half = len(row.ranking.seeds), row.ranking.error.half_width
    chosen = [MEASURES[name] for name in measures]
    return (
        row.name,
        _error(row),
        "–" if half is None else f"± {half:.2f}",
        _p_value(row.ranking),
        *(_spread(Estimate.of(row.values(key)), digits) for _, key, digits in chosen),
        ", ".join(f"{best:.0f}" for best in row.values("best_round")) or "–",
        duration(row.mean("seconds_total")),
        duration(row.mean("seconds_per_round")),
        "–" if up is None else format_bytes(up),
        "–" if down is None else format_bytes(down),
        str(seeds) if seeds == len(row.results) else f"{seeds} of {len(row.results)}",
    )


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
    lines += [*_label_notes(rows), *plan.split_warnings, *_test_notes(rows)]
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
        clients = run.federation.clients if run is not None and run.federation else ()
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
        for text in ((result.run and result.run.summary) or {}).get("warnings", ()):
            seeds.setdefault((result.trial.row, str(text)), []).append(result.trial.seed)
    for (row, text), which in seeds.items():
        noun = "seed" if len(which) == 1 else "seeds"
        yield f"Warning: {row}, {noun} {', '.join(map(str, which))}: {text}"


def print_rows(plan: Plan, rows: Sequence[Row]) -> None:
    """Print the table and its notes; a star marks the best runs."""
    lines = []
    for row in rows:
        name, error, *rest = texts(row, plan.measures)
        lines.append([name, f"{error} {'*' if row.ranking.marked else ' '}", *rest])
    head = headings(rows, plan.measures)
    print_table(f"{plan.num_clients} clients", head, lines, len(head) - 1, notes(plan, rows, "*"))


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
        return "–"
    return f"{estimate.mean:.{digits}f}" + (
        "" if estimate.std is None else f" ({estimate.std:.{digits}f})"
    )


def _p_value(ranking: Ranking) -> str:
    if ranking.p_value is None:
        return "best" if ranking.best else "–"
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
