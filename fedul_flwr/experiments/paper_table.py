"""The paper's figures and ours, one beside the other; free of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from fedul_flwr.experiments.metrics import MEASURES
from fedul_flwr.experiments.ranking import half_width
from fedul_flwr.experiments.result_file import Key, Result
from fedul_flwr.experiments.table_file import Size, Table

NOT_RUN = "not run"


@dataclass(frozen=True)
class Value:
    """A figure.

    Attributes
    ----------
    mean : over runs.
    std : sample standard deviation; None where it is not known.
    seeds : number of runs; 0 where it is not known, the paper's.
    half_width : half of the 95 % confidence interval; None with fewer than two runs.
    """

    mean: float
    std: float | None = None
    seeds: int = 0
    half_width: float | None = None

    @classmethod
    def of_paper(cls, printed: Sequence[float]) -> Value:
        """From a mean, and its standard deviation where it is known."""
        return cls(printed[0], printed[1] if len(printed) > 1 else None)

    def text(self, digits: int) -> str:
        """``2.98 (1.72)``, and ours with the interval and the number of seeds."""
        half = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        std = "" if self.std is None else f" ({self.std:.{digits}f})"
        count = f", {self.seeds} seed{'s' if self.seeds > 1 else ''}" if self.seeds else ""
        return f"{self.mean:.{digits}f}{half}{std}{count}"


@dataclass(frozen=True)
class Line:
    """One measure of one row and column: the paper's and, by size, ours; None for none.

    ``tuned`` is ours, too, with the settings that a search chose.
    """

    row: str
    column: str
    measure: str
    paper: Value | None
    ours: Mapping[Size, Value | None]
    tuned: Mapping[Size, Value | None] = field(default_factory=dict)

    def texts(self, size: Size) -> tuple[str, str]:
        """Ours, and how far it is from the paper's."""
        ours, digits = self.ours[size], MEASURES[self.measure].digits
        if ours is None:
            return NOT_RUN, "–"
        far = "–" if self.paper is None else f"{ours.mean - self.paper.mean:+.{digits}f}"
        return ours.text(digits), far

    def tuned_text(self, size: Size) -> str:
        """Ours with the settings that a search chose."""
        value = self.tuned.get(size)
        return "–" if value is None else value.text(MEASURES[self.measure].digits)

    def paper_text(self) -> str:
        """The paper's figure."""
        return "–" if self.paper is None else self.paper.text(MEASURES[self.measure].digits)


def lines(
    table: Table,
    results: Mapping[Size, Mapping[Key, Result]],
    rows: Sequence[str],
    columns: Sequence[str],
    tuned: Mapping[Size, Mapping[Key, Result]] | None = None,
) -> Iterator[Line]:
    """Lines of a table for each row and column it has, whether there is a figure or not.

    Parameters
    ----------
    results : known ones by size; a size that is not there is not shown.
    tuned : the same of tuned runs.
    """
    for column in columns:
        for row in rows:
            if row not in table.rows_of(column, "full"):
                continue
            for measure in table.settings.measures:
                printed = table.paper(measure, column, row)
                paper = None if printed is None else Value.of_paper(printed)
                ours = {size: _ours(of, row, column, measure) for size, of in results.items()}
                found = (tuned or {}).items()
                ours_tuned = {size: _ours(of, row, column, measure) for size, of in found}
                yield Line(row, column, measure, paper, ours, ours_tuned)


def curves(
    table: Table, column: str, results: Mapping[Key, Result]
) -> dict[str, tuple[list[int], list[float]]]:
    """Rounds that all seeds of a row measured and their mean test errors, of rows that have any.

    Parameters
    ----------
    results : of one size of the table.
    """
    found = {}
    for row in table.rows():
        own = [run["curve"] for (r, c, _), run in results.items() if (r, c) == (row, column)]
        series = [dict(zip(curve["rounds"], curve["test_error"], strict=True)) for curve in own]
        rounds = sorted(set.intersection(*map(set, series))) if series else []
        if rounds:
            found[row] = rounds, [fmean(known[step] for known in series) for step in rounds]
    return found


def _ours(results: Mapping[Key, Result], row: str, column: str, measure: str) -> Value | None:
    of = MEASURES[measure].of
    if of is None:
        return None
    found = [
        value
        for (own_row, own_column, _), result in results.items()
        if (own_row, own_column) == (row, column) and (value := of(result["figures"])) is not None
    ]
    if not found:
        return None
    std = stdev(found) if len(found) > 1 else None
    return Value(fmean(found), std, len(found), half_width(found))
