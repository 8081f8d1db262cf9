"""The paper's figures beside ours: lines of a table with results, and errors over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedul_flwr.experiments.compare_table import Estimate, print_table, stack_curves
from fedul_flwr.experiments.result_file import Result
from fedul_flwr.experiments.table_file import Size, Table
from fedul_flwr.experiments.trial import METRICS, Key

Results = Mapping[Key, Result]
_FORM = "mean ± half of its 95 % confidence interval (std over seeds)"


@dataclass(frozen=True)
class Line:
    """One metric of one row and column.

    Attributes
    ----------
    paper : the paper's figure.
    ours : our figures by size.
    tuned : our figures with the settings that a search chose, by size.
    """

    row: str
    column: str
    metric: str
    paper: Estimate
    ours: Mapping[Size, Estimate]
    tuned: Mapping[Size, Estimate] = field(default_factory=dict)

    @property
    def has_run(self) -> bool:
        """Whether there is a figure of ours."""
        return any(figure.count for figure in (*self.ours.values(), *self.tuned.values()))

    @property
    def heading(self) -> str:
        """Name and unit of the metric."""
        return METRICS[self.metric].heading

    def text(self, figure: Estimate | None) -> str:
        """A figure with the digits of the metric."""
        return (figure or Estimate()).text(METRICS[self.metric].digits)

    def texts(self, size: Size) -> tuple[str, str]:
        """Our figure, and its difference to the paper's."""
        ours, paper = self.ours[size].mean, self.paper.mean
        if ours is None:
            return "not run", "–"
        digits = METRICS[self.metric].digits
        difference = "–" if paper is None else f"{ours - paper:+.{digits}f}"
        return self.text(self.ours[size]), difference


def lines(
    table: Table,
    results: Mapping[Size, Results],
    rows: Sequence[str],
    columns: Sequence[str],
    tuned: Mapping[Size, Results] | None = None,
) -> Iterator[Line]:
    """Lines of a table for each of the rows, columns and metrics, with or without figures.

    Parameters
    ----------
    results : results of the sizes to be shown.
    tuned : results of tuned runs of the sizes to be shown.
    """
    for column in columns:
        for row in rows:
            if row not in table.rows_of(column, "full"):
                continue
            for metric in table.settings.measures:
                mean, std, *_ = (*table.paper(metric, column, row), None, None)
                yield Line(
                    row,
                    column,
                    metric,
                    Estimate(mean, std),
                    {size: _estimate(of, row, column, metric) for size, of in results.items()},
                    {
                        size: _estimate(of, row, column, metric)
                        for size, of in (tuned or {}).items()
                    },
                )


def of_cell(results: Results, row: str, column: str) -> list[Result]:
    """Results of all seeds of one cell."""
    return [result for key, result in results.items() if key[:2] == (row, column)]


def _estimate(results: Results, row: str, column: str, metric: str) -> Estimate:
    of = METRICS[metric].of
    if of is None:
        return Estimate()
    figures = [
        {**result["figures"], "seconds": result.get("seconds")}
        for result in of_cell(results, row, column)
    ]
    return Estimate.of([value for each in figures if (value := of(each)) is not None])


def mean_curves(
    table: Table, column: str, results: Results
) -> dict[str, tuple[list[int], list[float]]]:
    """Rounds and mean test errors of each row of a column that has any.

    Only rounds that all seeds measured count.

    Parameters
    ----------
    results : results of the table at one size.
    """
    by_row = {}
    for row in table.rows():
        curves = [result["curve"] for result in of_cell(results, row, column)]
        rounds, errors = stack_curves(
            dict(zip(curve["rounds"], curve["test_error"], strict=True)) for curve in curves
        )
        if rounds:
            by_row[row] = rounds, [float(mean) for mean in errors.mean(axis=0)]
    return by_row


def print_lines(
    table: Table, size: Size | None, shown: Sequence[Line], *, tuned: bool = False
) -> None:
    """Print the paper's figures, ours of ``size`` and the difference; without size the paper's."""
    several = len(table.settings.measures) > 1
    names = ["column", "row", *(["measure"] if several else [])]
    numbers = [
        "paper",
        *([f"{'tuned' if tuned else 'ours'}, {size}", "difference"] if size else []),
    ]
    lines = [
        (
            *(line.column, line.row, *([line.heading] if several else [])),
            *(line.text(line.paper), *(line.texts(size) if size else ())),
        )
        for line in shown
    ]
    notes = [] if several else [f"{METRICS[table.settings.measures[0]].heading}, {_FORM}."]
    title = f"{table.name}: {table.settings.title}"
    print_table(title, [*names, *numbers], lines, len(numbers), notes)
